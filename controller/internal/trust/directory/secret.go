package directory

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/controller/internal/trust/authority"
)

// authority reads the Secret; without one it returns nil and the zero State.
func (k *Keeper) authority(ctx context.Context) (*corev1.Secret, authority.State, error) {
	secret, err := k.cfg.Client.CoreV1().Secrets(k.cfg.Namespace).Get(ctx, SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, authority.State{}, nil
	}
	if err != nil {
		return nil, authority.State{}, fmt.Errorf("read Secret %s/%s: %w", k.cfg.Namespace, SecretName, err)
	}
	state, err := authority.Decode(secret.Data)
	if err != nil {
		return nil, authority.State{}, fmt.Errorf("read Secret %s/%s: %w", k.cfg.Namespace, SecretName, err)
	}
	return secret, state, nil
}

// advance stores the next state of the CA, if one is due. Whoever loses a race for the Secret reads it again: a key is
// used only after the API server has taken it.
func (k *Keeper) advance(ctx context.Context, secret *corev1.Secret, state authority.State) (*corev1.Secret, authority.State, error) {
	asked := false
	if secret != nil {
		_, asked = secret.Annotations[AnnotationRotate]
	}
	next, what, err := k.cfg.Policy.Advance(state, time.Now(), asked)
	if err != nil {
		return nil, state, err
	}
	if what == "" {
		return secret, state, nil
	}
	if secret != nil {
		delete(secret.Annotations, AnnotationRotate)
	}
	if err := k.store(ctx, secret, next); err != nil {
		return nil, state, err
	}
	k.cfg.Logger.InfoContext(ctx, "certificate authority: "+what, //nolint:sloglint // one of six constants
		slog.String("secret", k.cfg.Namespace+"/"+SecretName), slog.Time("until", next.Current.Cert.NotAfter))
	return k.authority(ctx)
}

// store writes a state into the Secret, as it was read; nil makes it.
func (k *Keeper) store(ctx context.Context, secret *corev1.Secret, state authority.State) error {
	secrets := k.cfg.Write.CoreV1().Secrets(k.cfg.Namespace)
	var err error
	if secret == nil {
		_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: SecretName}, Data: state.Encode()}, metav1.CreateOptions{})
	} else {
		secret.Data = state.Encode()
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", k.cfg.Namespace, SecretName, err)
	}
	return nil
}

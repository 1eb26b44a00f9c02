package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead/fairlead/controller/internal/trust/authority"
)

// Names of the objects, in the namespace of the controllers.
const (
	ConfigMapName = "fairlead-controllers"
	SecretName    = "fairlead-ca"
)

// Keys of the ConfigMap; agents ignore others.
const (
	// KeyBundle is the CA bundle, as PEM.
	KeyBundle = "ca.crt"
	// KeyControllers are the replicas that serve agents and KeyAPIServers the API servers: one host:port a line, sorted.
	KeyControllers = "controllers"
	KeyAPIServers  = "apiservers"
)

// AnnotationRotate on the Secret asks for a new CA before the time; the leader takes it off.
const AnnotationRotate = "fairlead.io/rotate"

// Config of a Keeper. All fields but Policy, Bundle and Authority are required.
type Config struct {
	// Client reads, and writes this replica's own Lease; Write is for the leader.
	Client, Write kubernetes.Interface
	Namespace     string
	// Self is where agents reach this replica, as host:port.
	Self string
	// Every is the pause between two rounds.
	Every time.Duration
	// Serving says whether this replica serves agents, Leading whether it may write.
	Serving, Leading func() bool
	// Policy of the CA that the leader makes; nil for none. Authority is told the state of it in each round.
	Policy    *authority.Policy
	Authority func(authority.State)
	// Bundle is published where there is no Policy; nil for none.
	Bundle func() []byte
	// APIServers are published as they are.
	APIServers func() []string
	// Replicas is told those that serve agents, sorted, when they change; Orders what the owner wants, in each round.
	Replicas func([]string)
	Orders   func(Orders)
	Logger   *slog.Logger
}

// Keeper does the work; Run is one goroutine.
type Keeper struct {
	cfg      Config
	observed map[string]observation
	replicas []string
	said     string
	known    chan struct{}
	once     sync.Once
}

// New returns a Keeper that does nothing before Run.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, observed: map[string]observation{}, known: make(chan struct{})}
}

// Known is closed when the owner's orders have been read once.
func (k *Keeper) Known() <-chan struct{} { return k.known }

// Run keeps everything up to date until ctx ends, which is no error; it then takes this replica off the list.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		k.say(ctx, k.round(ctx))
		pause := k.cfg.Every
		if k.cfg.Serving() && !slices.Contains(k.replicas, k.cfg.Self) {
			pause /= 10 // agents wait for the first list
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			k.leave(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// say logs trouble once, and its end.
func (k *Keeper) say(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && err.Error() != k.said:
		k.said = err.Error()
		k.cfg.Logger.WarnContext(ctx, "cannot keep the directory of controllers up to date, trying on", slog.Any("err", err))
	case err == nil && k.said != "":
		k.said = ""
		k.cfg.Logger.InfoContext(ctx, "the directory of controllers is up to date again")
	}
}

// round does what is due. Its parts fail apart, but for the bundle, which nothing may be published without.
func (k *Keeper) round(ctx context.Context) error {
	published, err := k.published(ctx)
	if err != nil {
		return err
	}
	obeyed := k.obey(published)
	var announced error
	if k.cfg.Serving() {
		announced = k.announce(ctx)
	}
	return errors.Join(obeyed, announced, k.list(ctx), unlessRaced(k.trust(ctx, published)))
}

// published reads the ConfigMap; nil is none.
func (k *Keeper) published(ctx context.Context) (*corev1.ConfigMap, error) {
	cm, err := k.cfg.Client.CoreV1().ConfigMaps(k.cfg.Namespace).Get(ctx, ConfigMapName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		cm, err = nil, nil
	case apierrors.IsForbidden(err):
		// Without the right to read there are no orders to obey, and tables go out as ever.
		k.once.Do(func() { close(k.known) })
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", k.cfg.Namespace, ConfigMapName, err)
	}
	return cm, nil
}

// obey passes the owner's orders on.
func (k *Keeper) obey(cm *corev1.ConfigMap) (err error) {
	var orders Orders
	if cm != nil {
		orders, err = ordersOf(cm.Annotations)
	}
	k.cfg.Orders(orders)
	k.once.Do(func() { close(k.known) })
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", k.cfg.Namespace, ConfigMapName, err)
	}
	return nil
}

// trust brings the CA a step further and publishes what agents need. The bundle is published before anything depends on
// it: only then does the Secret say since when.
func (k *Keeper) trust(ctx context.Context, published *corev1.ConfigMap) error {
	if k.cfg.Policy == nil {
		var bundle []byte
		if k.cfg.Bundle != nil {
			bundle = k.cfg.Bundle()
		}
		return k.publish(ctx, published, bundle)
	}
	secret, state, err := k.authority(ctx)
	if err != nil {
		return err
	}
	if k.cfg.Leading() {
		if secret, state, err = k.advance(ctx, secret, state); err != nil {
			return err
		}
	}
	if state.Current == nil {
		return nil // the leader makes it
	}
	k.cfg.Authority(state)
	if err := k.publish(ctx, published, state.Bundle()); err != nil || !k.cfg.Leading() || !state.Since.IsZero() {
		return err
	}
	state.Since = time.Now()
	return k.store(ctx, secret, state)
}

// publish writes the ConfigMap, if this replica leads and it does not say what it should. Keys and annotations of others
// stay.
func (k *Keeper) publish(ctx context.Context, cm *corev1.ConfigMap, bundle []byte) error {
	if !k.cfg.Leading() {
		return nil
	}
	want := map[string]string{
		KeyBundle: string(bundle), KeyControllers: lines(k.replicas), KeyAPIServers: lines(k.cfg.APIServers()),
	}
	maps := k.cfg.Write.CoreV1().ConfigMaps(k.cfg.Namespace)
	var err error
	if cm == nil {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.cfg.Namespace, Name: ConfigMapName}}
		merge(cm, want)
		_, err = maps.Create(ctx, cm, metav1.CreateOptions{})
	} else if merge(cm, want) {
		_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", k.cfg.Namespace, ConfigMapName, err)
	}
	return nil
}

// merge puts entries into the data of a ConfigMap, takes those without content out, and reports whether it changed.
func merge(cm *corev1.ConfigMap, want map[string]string) (changed bool) {
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	for key, value := range want {
		switch have, there := cm.Data[key]; {
		case value == "" && there:
			delete(cm.Data, key)
			changed = true
		case value != "" && have != value:
			cm.Data[key] = value
			changed = true
		}
	}
	return changed
}

// unlessRaced drops an error that the next round mends: somebody else wrote meanwhile.
func unlessRaced(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func lines(entries []string) string {
	text := ""
	for _, e := range slices.Sorted(slices.Values(entries)) {
		text += e + "\n"
	}
	return text
}

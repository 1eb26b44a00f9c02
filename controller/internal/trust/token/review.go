package token

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// Reviews a second, and how many may come at once: callers choose when they call, the API server must not feel it.
const (
	reviewsPerSecond = 100
	reviewBurst      = 200
)

// Review asks the API server about each token, by a TokenReview, in place of verifying signatures here: it knows tokens
// that were taken back, and costs a request for each stream. Safe for concurrent use.
type Review struct {
	client   authentication.TokenReviewInterface
	audience string
	limiter  *rate.Limiter
}

// NewReview returns a Review of tokens for an audience.
func NewReview(client authentication.TokenReviewInterface, audience string) *Review {
	return &Review{client: client, audience: audience, limiter: rate.NewLimiter(reviewsPerSecond, reviewBurst)}
}

// Verify implements Signatures.
func (r *Review) Verify(ctx context.Context, raw string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if err := r.limiter.Wait(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	answer, err := r.client.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: raw, Audiences: []string{r.audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	// An API server that does not know audiences returns none, and has verified none.
	if !answer.Status.Authenticated || !slices.Contains(answer.Status.Audiences, r.audience) {
		return errors.New("the API server does not accept the token")
	}
	return nil
}

package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/idempotency"
	"github.com/leaseq/leaseq/internal/redistest"
)

// Examples have no *testing.T of their own; TestMain's server is asked for through one that only needs an address.
func exampleRedis() *redis.Client { return redis.NewClient(redistest.Options(&testing.B{})) }

// A result is stored once and replayed. What must not run twice, the transfer, runs once.
func ExampleDo() {
	rdb := exampleRedis()
	defer rdb.Close()
	guard, err := idempotency.New(rdb, "example-refunds", nil)
	if err != nil {
		panic(err)
	}
	defer guard.Close(context.Background())
	key := fmt.Sprintf("refund:10086:%d", time.Now().UnixNano())

	transfers := 0
	refund := func(context.Context) (string, error) {
		transfers++
		return fmt.Sprintf("transfer %d", transfers), nil
	}
	for range 3 {
		receipt, err := idempotency.Do(context.Background(), guard, key, refund, nil)
		fmt.Println(receipt, err)
	}
	// Output:
	// transfer 1 <nil>
	// transfer 1 <nil>
	// transfer 1 <nil>
}

// In an HTTP handler the client's Idempotency-Key is the key, and the body the request: another body under the same key
// is the client's mistake.
func ExampleDo_httpHandler() {
	rdb := exampleRedis()
	defer rdb.Close()
	guard, err := idempotency.New(rdb, "example-payments", nil)
	if err != nil {
		panic(err)
	}
	defer guard.Close(context.Background())

	charged := 0
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		receipt, err := idempotency.Do(r.Context(), guard, r.Header.Get("Idempotency-Key"), func(context.Context) (string, error) {
			charged++
			return fmt.Sprintf("charged %s (%d)", body, charged), nil
		}, &idempotency.DoOptions[string]{Request: body})
		var busy *idempotency.InFlightError
		switch {
		case err == nil:
			fmt.Fprint(w, receipt)
		case errors.As(err, &busy):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "still under way", http.StatusConflict)
		case errors.As(err, new(*idempotency.OtherRequestError)):
			http.Error(w, "this key was used for another request", http.StatusUnprocessableEntity)
		case errors.Is(err, idempotency.ErrRan): // nobody can say yet: the same key tells later
			http.Error(w, "perhaps charged", http.StatusBadGateway)
		default: // it did not run
			http.Error(w, "try again", http.StatusServiceUnavailable)
		}
	})
	key := fmt.Sprintf("pay:%d", time.Now().UnixNano())
	for _, body := range []string{"10 EUR", "10 EUR", "20 EUR"} {
		r := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 200 charged 10 EUR (1)
	// 200 charged 10 EUR (1)
	// 422 this key was used for another request
}

// With the policy Ask the downstream decides what became of an effect whose holder died.
func ExampleGuard_Begin_inDoubt() {
	rdb := exampleRedis()
	defer rdb.Close()
	guard, err := idempotency.New(rdb, "example-coupons", &idempotency.Options{InDoubt: idempotency.Ask})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer guard.Close(ctx)
	key := fmt.Sprintf("coupon:%d", time.Now().UnixNano())
	first, err := guard.Begin(ctx, key, nil)
	if err != nil {
		panic(err)
	}
	_ = first.Permit.Abandon(ctx) // as if its process had died between the effect and the commit, a lease ago

	again, err := guard.Begin(ctx, key, nil)
	if err != nil {
		panic(err)
	}
	granted := true // what the coupon service says
	if again.InDoubt && granted {
		err = again.Permit.Commit(ctx, []byte("granted before"))
	}
	fmt.Println(again.InDoubt, err)
	last, err := guard.Begin(ctx, key, nil)
	fmt.Println(last.Done, string(last.Result), err)
	// Output:
	// true <nil>
	// true granted before <nil>
}

package reliable_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// probe answers 503 while the consumer cannot work. Handlers that hang are no reason while a slot is left.
func probe(c *reliable.Consumer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := c.Health(r.Context())
		if hang := (*reliable.OverdueError)(nil); errors.As(err, &hang) && hang.Free > 0 {
			err = nil
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
}

func ExampleConsumer_Health() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	q, err := reliable.New(rdb, "orders", nil)
	if err != nil {
		panic(err)
	}
	c, err := reliable.NewConsumer(q, reliable.HandlerFunc(func(context.Context, *reliable.Job) error { return nil }), nil)
	if err != nil {
		panic(err)
	}
	answer := httptest.NewRecorder()
	probe(c)(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	fmt.Println(answer.Code, answer.Body)
	// Output:
	// 503 it is not running
}

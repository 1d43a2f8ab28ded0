package reliable_test

import (
	"context"
	"fmt"
	"iter"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// The ledger is a table of orders in a shop; here it is a slice. In a handler check the order again before closing it.
func ExampleReconcile() {
	server, err := miniredis.Run() // stands in for your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx := context.Background()
	q, err := reliable.New(rdb, "orders", nil)
	if err != nil {
		panic(err)
	}
	defer q.Close(ctx)

	unpaid := []string{"10086", "10087", "10088"} // SELECT id FROM orders WHERE status = 'WAIT_PAY' AND due_at < $1
	source := func(context.Context) iter.Seq2[reliable.Item, error] {
		return func(yield func(reliable.Item, error) bool) {
			for _, id := range unpaid {
				item := reliable.Item{ID: "close:" + id, Kind: "order.close", Payload: []byte(`{"id":"` + id + `"}`)}
				if !yield(item, nil) {
					return
				}
			}
		}
	}
	r, err := reliable.NewReconcile(q, source, nil)
	if err != nil {
		panic(err)
	}
	first, err := r.Pass(ctx) // r.Run(ctx) makes one every Interval
	if err != nil {
		panic(err)
	}
	server.FlushAll() // Redis forgets everything
	second, err := r.Pass(ctx)
	if err != nil {
		panic(err)
	}
	third, err := r.Pass(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(first.Created, second.Created, third.Created, third.There[reliable.Due])
	// Output: 3 3 0 3
}

package reliable_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// Row is what one job writes into a database.
type Row struct{ Order, Cents int }

func (Row) Kind() string { return "row.insert" }

var inserts atomic.Int64

// insertAll stands for one INSERT of many rows. A row that the database refuses has an error of its own.
func insertAll(_ context.Context, rows []Row) []error {
	errs := make([]error, len(rows))
	for i, row := range rows {
		if row.Cents < 0 {
			errs[i] = reliable.Discard(fmt.Errorf("order %d has %d cents", row.Order, row.Cents))
		}
	}
	inserts.Add(1)
	return errs
}

func insert(mux *reliable.Mux) error {
	return reliable.HandleBatch(mux, 100, func(ctx context.Context, jobs []*reliable.Job, rows []Row) []error {
		return insertAll(ctx, rows) // an error for each row; nil for all
	}, nil)
}

func ExampleHandleBatch() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()

	q, err := reliable.New(rdb, "rows", nil)
	if err != nil {
		panic(err)
	}
	defer q.Close(context.Background())
	rows := make([]reliable.Item, 100)
	for i := range rows {
		rows[i] = reliable.Item{Kind: "row.insert", Payload: fmt.Appendf(nil, `{"Order":%d,"Cents":%d}`, i, 99-2*i%100)}
	}
	rows[7].Payload = []byte(`{"Order":7,"Cents":-1}`)
	if _, err := q.EnqueueMany(ctx, rows); err != nil {
		panic(err)
	}

	mux := reliable.NewMux()
	if err := insert(mux); err != nil {
		panic(err)
	}
	settled := make(chan string, len(rows))
	c, err := reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{
		Concurrency: 100, // a slot for each job of a batch
		Hooks: &reliable.Hooks{
			OnDone: func(context.Context, reliable.Event) { settled <- "" },
			OnDead: func(_ context.Context, e reliable.Event) { settled <- e.Err.Error() },
		},
	})
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	done := 0
	for range rows {
		if dead := <-settled; dead != "" {
			fmt.Println("dead:", dead)
			continue
		}
		done++
	}
	stop()
	fmt.Println("done:", done, <-ended)
	fmt.Println("many rows in one INSERT:", inserts.Load() <= 20)
	// Output:
	// dead: order 7 has -1 cents
	// done: 99 <nil>
	// many rows in one INSERT: true
}

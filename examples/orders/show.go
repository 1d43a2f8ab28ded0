package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

const (
	products  = 20
	customers = 16                     // at once
	killEvery = 300 * time.Millisecond // a worker, from the first due time on
	lookEvery = 50 * time.Millisecond
	grace     = time.Second // past its time before the scan takes an order up: 5 minutes in a shop
)

// A stage is everything that a show needs.
type stage struct {
	settings settings
	shop     Shop
	rdb      *redis.Client
	queue    *reliable.Queue
	crew     crew
	scanned  atomic.Int64 // jobs that the scan has made
	forgot   int          // jobs that Redis had when it was flushed
}

// show runs the shop while workers are killed and Redis is flushed, and proves what came of it.
func show(ctx context.Context, s settings) (err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, s.within, fmt.Errorf("not done within %v", s.within))
	defer cancel()
	stopServers, err := startServers(ctx, &s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServers()) }()
	st, err := newStage(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close(context.WithoutCancel(ctx))) }()
	for range s.workers {
		if err := st.crew.start(); err != nil {
			return err
		}
	}
	if err := st.play(ctx); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if err := errors.Join(st.crew.stop(), prove(ctx, st.shop)); err != nil {
		return err
	}
	return st.report(ctx, time.Since(began))
}

func newStage(ctx context.Context, s settings) (*stage, error) {
	db, err := sql.Open("pgx", s.postgres)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2 * customers)
	st := &stage{settings: s, shop: Shop{db}, rdb: redis.NewClient(&redis.Options{Addr: s.redis}), crew: crew{settings: s}}
	if _, err = db.ExecContext(ctx, tables); err == nil {
		_, err = db.ExecContext(ctx, `INSERT INTO stock SELECT product, 0 FROM generate_series(0, $1::bigint - 1) AS product`, products)
	}
	if err == nil {
		st.queue, err = openQueue(st.rdb, s.queue)
	}
	if err != nil {
		return nil, errors.Join(err, st.close(ctx))
	}
	return st, nil
}

func (st *stage) close(ctx context.Context) error {
	err := st.crew.stop()
	if st.queue != nil {
		err = errors.Join(err, st.queue.Close(ctx))
	}
	return errors.Join(err, st.rdb.Close(), st.shop.db.Close())
}

// play has customers, workers, the scan and the trouble at work at once, and ends when no order waits any more.
func (st *stage) play(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	scan, err := reliable.NewReconcile(st.queue, overdue(st.shop, grace), &reliable.ReconcileOptions{
		Interval: time.Second,
		OnPass:   func(p reliable.Pass, _ error) { st.scanned.Add(p.Created) },
	})
	if err != nil {
		stop()
		return err
	}
	var scanning, shopping sync.WaitGroup
	scanning.Go(func() { _ = scan.Run(ctx) }) // nil: it ends with ctx
	defer scanning.Wait()
	defer stop()
	failures := make(chan error, customers)
	var next atomic.Int64
	for range customers {
		shopping.Go(func() {
			if err := st.shopAround(ctx, &next); err != nil {
				failures <- err
			}
		})
	}
	shopped := make(chan struct{})
	go func() { shopping.Wait(); close(shopped) }()
	err = st.trouble(ctx, shopped, failures)
	stop()
	<-shopped
	return err
}

// shopAround creates orders and pays two of five of them, at any time until a little after they were due.
func (st *stage) shopAround(ctx context.Context, next *atomic.Int64) error {
	var paying sync.WaitGroup
	defer paying.Wait()
	failures := make(chan error, st.settings.orders)
	for ctx.Err() == nil {
		id := next.Add(1)
		if id > int64(st.settings.orders) {
			break
		}
		if err := create(ctx, st.shop, st.queue, id, id%products, st.settings.due); err != nil {
			return errors.Join(err, ctx.Err())
		}
		if id%5 < 2 {
			paying.Go(func() {
				if pause(ctx, rand.N(st.settings.due+st.settings.due/4)) != nil {
					return
				}
				if _, err := pay(ctx, st.shop, st.queue, id); err != nil {
					failures <- err
				}
			})
		}
	}
	paying.Wait()
	close(failures)
	return <-failures // the first, or nil
}

// trouble kills workers from the first due time on, and flushes Redis when a fifth of the orders is closed.
func (st *stage) trouble(ctx context.Context, shopped <-chan struct{}, failures chan error) error {
	killing := time.Now().Add(st.settings.due)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	flushed := false
	for {
		select {
		case err := <-failures:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		closed, err := st.shop.count(ctx, "CLOSED")
		if err != nil {
			return err
		}
		if !flushed && closed >= st.settings.orders/5 {
			if err := st.flush(ctx); err != nil {
				return err
			}
			flushed = true
		}
		if now := time.Now(); now.After(killing) {
			if err := st.crew.killOne(); err != nil {
				return err
			}
			killing = now.Add(killEvery)
		}
		waiting, err := st.shop.count(ctx, "WAIT_PAY")
		if err != nil {
			return err
		}
		if ended(shopped) && waiting == 0 && flushed {
			close(failures) // nobody writes to it any more
			return <-failures
		}
	}
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// flush makes Redis forget everything.
func (st *stage) flush(ctx context.Context) error {
	stats, err := st.queue.Stats(ctx)
	if err != nil {
		return err
	}
	st.forgot = int(stats.Due + stats.Processing)
	return st.rdb.FlushAll(ctx).Err()
}

// report says what happened. A show in which nothing went wrong proves nothing, and is an error.
func (st *stage) report(ctx context.Context, took time.Duration) error {
	paid, err := st.shop.count(ctx, "PAID")
	if err != nil {
		return err
	}
	closed, err := st.shop.count(ctx, "CLOSED")
	if err != nil {
		return err
	}
	fmt.Printf("%d orders: %d paid, %d closed, each once\n", paid+closed, paid, closed)
	fmt.Printf("%d workers killed; Redis forgot %d jobs, and the scan made %d\n", st.crew.killed, st.forgot, st.scanned.Load())
	fmt.Printf("proved with SQL in %v\n", took.Round(100*time.Millisecond))
	if paid+closed != st.settings.orders || st.crew.killed == 0 || st.forgot == 0 || st.scanned.Load() == 0 {
		return errors.New("this run proves too little: all orders, a kill, a flush of jobs and a scan that made some are needed")
	}
	return nil
}

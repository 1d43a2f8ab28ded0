package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// leaseTime is short here, so that the work of a killed worker is soon done by another. A shop takes the default of 15 s.
const leaseTime = time.Second

// CloseOrder is the job that closes an order when its time is over.
type CloseOrder struct {
	ID int64 `json:"id"`
}

// Kind names the job's format.
func (CloseOrder) Kind() string { return "order.close" }

// jobID follows from the order, so that an order has one job whoever enqueues it.
func jobID(order int64) string { return "close:" + strconv.FormatInt(order, 10) }

func openQueue(rdb redis.UniversalClient, name string) (*reliable.Queue, error) {
	return reliable.New(rdb, name, &reliable.QueueOptions{Lease: leaseTime})
}

// create makes an order and the job that will close it. A crash between the two, or a Redis that is away, leaves an order
// without a job: the scan finds it when its time is over.
func create(ctx context.Context, shop Shop, q *reliable.Queue, id, product int64, due time.Duration) error {
	if err := shop.Create(ctx, id, product, due); err != nil {
		return err
	}
	_, err := reliable.Enqueue(ctx, q, CloseOrder{ID: id}, &reliable.EnqueueOptions{ID: jobID(id), Delay: due})
	if errors.Is(err, reliable.ErrDuplicate) {
		return nil
	}
	return err
}

// pay pays an order and cancels its job, which only saves work: a job that runs all the same finds the order paid.
func pay(ctx context.Context, shop Shop, q *reliable.Queue, id int64) (bool, error) {
	paid, err := shop.Pay(ctx, id)
	if err != nil || !paid {
		return false, err
	}
	removed, err := q.Cancel(ctx, jobID(id))
	if err != nil {
		return true, fmt.Errorf("order %d is paid, and its job not cancelled: %w", id, err)
	}
	if err := removed[0].Err; err != nil && !errors.Is(err, reliable.ErrGone) {
		return true, err
	}
	return true, nil
}

// handlers closes orders. The handler asks the database, in the write itself, whether the order still waits: never trust
// a job to know the business.
func handlers(shop Shop, work time.Duration) (*reliable.Mux, error) {
	mux := reliable.NewMux()
	err := reliable.Handle(mux, func(ctx context.Context, job *reliable.Job, o CloseOrder) error {
		// An effect outside of the database, as a mail, would be guarded here, by the job's lease.
		_, err := shop.Close(ctx, o.ID, job.Fence(), work)
		return err // nil acks: closed now, or paid or closed before
	}, nil)
	return mux, err
}

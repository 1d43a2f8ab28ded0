package main

import (
	"context"
	"database/sql"
	"errors"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver called pgx
	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/reliable"
)

// work is a worker process: it closes orders until ctx ends.
func work(ctx context.Context, s settings) error {
	db, err := sql.Open("pgx", s.postgres)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	rdb := redis.NewClient(&redis.Options{Addr: s.redis})
	defer func() { _ = rdb.Close() }()
	q, err := openQueue(rdb, s.queue)
	if err != nil {
		return err
	}
	mux, err := handlers(Shop{db}, s.work)
	if err != nil {
		return err
	}
	c, err := reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{Concurrency: 8})
	if err != nil {
		return err
	}
	return errors.Join(c.Run(ctx), q.Close(context.WithoutCancel(ctx)))
}

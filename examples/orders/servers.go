package main

import (
	"context"
	"errors"

	"github.com/leaseq/leaseq/examples/internal/postgres"
	"github.com/leaseq/leaseq/internal/redisproc"
)

// startServers starts what s names no address of, and writes the addresses into s. stop ends what was started.
func startServers(ctx context.Context, s *settings) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, one := range stops {
			errs = append(errs, one())
		}
		return errors.Join(errs...)
	}
	if s.redis == "" {
		server, err := redisproc.Start(ctx, nil)
		if err != nil {
			return stop, err
		}
		stops = append(stops, func() error { return server.Stop(context.WithoutCancel(ctx)) })
		s.redis = server.Addr()
	}
	if s.postgres == "" {
		server, err := postgres.Start(ctx)
		if err != nil {
			return stop, errors.Join(err, stop())
		}
		stops = append(stops, server.Stop)
		s.postgres = server.DSN()
	}
	return stop, nil
}

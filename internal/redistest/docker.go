package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
	"github.com/redis/go-redis/v9"
)

const (
	imageName, imageTag = "redis", "7"

	// pullBound is how long the image may take to arrive where it is not there yet.
	pullBound = 3 * time.Minute

	// containerLife is after how long a container ends by itself, whatever became of the tests.
	containerLife = 30 * time.Minute
)

// startDocker starts a container with a Redis on a free port of 127.0.0.1. The container is removed when it ends.
func startDocker() (*backend, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	idle := func() {}
	if pool.Client.HTTPClient != nil {
		idle = pool.Client.HTTPClient.CloseIdleConnections
	}
	b, err := runContainer(pool)
	idle()
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	remove := b.close
	b.close = func() error {
		defer idle()
		return remove()
	}
	return b, nil
}

func runContainer(pool *dockertest.Pool) (*backend, error) {
	if err := pool.Client.Ping(); err != nil {
		return nil, fmt.Errorf("the engine does not answer: %w", err)
	}
	if err := pull(pool); err != nil {
		return nil, fmt.Errorf("image %s:%s: %w", imageName, imageTag, err)
	}
	life := strconv.Itoa(int(containerLife.Seconds()))
	resource, err := pool.RunWithOptions(&dockertest.RunOptions{
		Repository: imageName,
		Tag:        imageTag,
		// Not Resource.Expire: it asks Docker to stop the container now and kill it later, and Redis obeys the first.
		Entrypoint:   []string{"timeout", life, "redis-server"},
		Cmd:          []string{"--save", "", "--appendonly", "no", "--protected-mode", "no"},
		ExposedPorts: []string{"6379/tcp"},
		PortBindings: map[docker.Port][]docker.PortBinding{"6379/tcp": {{HostIP: "127.0.0.1", HostPort: "0"}}},
		Labels:       map[string]string{"org.leaseq.test": "shared server"},
	}, func(config *docker.HostConfig) {
		config.AutoRemove = true
		config.RestartPolicy = docker.NeverRestart()
	})
	if err != nil {
		return nil, err
	}
	b := &backend{
		kind:    kindDocker,
		options: &redis.Options{Addr: net.JoinHostPort("127.0.0.1", resource.GetPort("6379/tcp"))},
		close:   func() error { return pool.Purge(resource) },
	}
	if err := b.ping(startBound); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// pull fetches the image unless it is there.
func pull(pool *dockertest.Pool) error {
	if _, err := pool.Client.InspectImage(imageName + ":" + imageTag); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), pullBound)
	defer cancel()
	return pool.Client.PullImage(docker.PullImageOptions{Repository: imageName, Tag: imageTag, Context: ctx}, docker.AuthConfiguration{})
}

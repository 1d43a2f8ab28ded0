package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Site is what faults can reach: the workers, the ways to Redis, and Redis.
type Site struct {
	storm *storm
}

// Lease is the queue's.
func (s *Site) Lease() time.Duration { return s.storm.Lease }

// Queue and Prefix name the queue that is worked on.
func (s *Site) Queue() string { return s.storm.Queue }

// Prefix of the queue's keys.
func (s *Site) Prefix() string { return s.storm.Prefix }

// Admin is a client for the server itself, by no link that has faults.
func (s *Site) Admin() *redis.Client { return s.storm.server.admin }

// Posts are those of all workers.
func (s *Site) Posts() []*Post { return s.storm.posts }

// ErrNoPost says that all workers are in the hands of other faults.
var ErrNoPost = errors.New("all workers are taken by other faults")

// Take takes the post of a worker that lives, chosen by chance among the n busiest, for the caller alone until GiveBack.
// It waits until one is free; if ctx ends before, it returns ErrNoPost.
func (s *Site) Take(ctx context.Context, rng *rand.Rand, n int) (*Post, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if p := s.storm.take(rng, n); p != nil {
			return p, nil
		}
		select {
		case <-ctx.Done():
			return nil, ErrNoPost
		case <-tick.C:
		}
	}
}

// TakeAll takes all posts, one after the other as they get free; after an error none.
func (s *Site) TakeAll(ctx context.Context) ([]*Post, error) {
	var got []*Post
	for _, p := range s.storm.posts {
		for !s.storm.takeThis(p) {
			select {
			case <-ctx.Done():
				for _, q := range got {
					s.GiveBack(q)
				}
				return nil, ErrNoPost
			case <-time.After(10 * time.Millisecond):
			}
		}
		got = append(got, p)
	}
	return got, nil
}

// GiveBack ends what Take began. A post that is given back without a process gets the next one.
func (s *Site) GiveBack(p *Post) {
	if !p.alive() {
		if err := p.Start(); err != nil {
			s.storm.problem("%v", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = false
}

func (s *storm) takeThis(p *Post) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken || p.process == nil || p.process.Ended() {
		return false
	}
	p.taken = true
	return true
}

func (s *storm) take(rng *rand.Rand, n int) *Post {
	order := rng.Perm(len(s.posts))
	var chosen []*Post
	for _, i := range order {
		chosen = append(chosen, s.posts[i])
	}
	if n > 0 {
		busiest(chosen)
		chosen = chosen[:min(n, len(chosen))]
	}
	for _, p := range chosen {
		if s.takeThis(p) {
			return p
		}
	}
	return nil
}

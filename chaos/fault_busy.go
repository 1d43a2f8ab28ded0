package chaos

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaseq/leaseq/chaos/record"
)

// busyFaults are those of a server that has no time, or no room, for its clients: rows 21 and 27.
func busyFaults() []Fault {
	return []Fault{
		{
			Name: "server-busy", Row: 21, Lane: Server,
			What: "somebody's script keeps the server busy; on a server of the run's own every other time so long that it answers BUSY",
			For:  [2]time.Duration{100 * time.Millisecond, 600 * time.Millisecond}, Inject: keepBusy,
		},
		{
			Name: "server-paused", Row: 21, Lane: Server,
			What: "CLIENT PAUSE: the server keeps all commands waiting",
			For:  [2]time.Duration{200 * time.Millisecond, 500 * time.Millisecond}, Leases: [2]float64{0, 0.5}, Inject: pauseClients,
		},
		{
			Name: "connections-refused", Row: 27, Lane: Server, Available: needOwnServer,
			What:   "all connections are closed by the server, and new ones refused (maxclients)",
			Leases: [2]float64{0.3, 1.2}, Inject: refuseConnections,
		},
	}
}

// loop is a script that runs for as many ms, and ends all the same where TIME stands still in scripts.
const loop = `
local function ms() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end
local over, n = ms() + ARGV[1], 0
repeat n = n + 1 until ms() >= over or n > ARGV[1] * 1000
return n`

func keepBusy(ctx context.Context, in *Injection) error {
	in.Begin("", 0, record.Outage, record.Lossy)
	if in.storm.server.own == nil || in.Rand.IntN(2) == 0 {
		aside := in.aside()
		defer aside.Close()
		return in.blocked(ctx, func(ctx context.Context) error { return aside.Eval(ctx, loop, nil, in.For.Milliseconds()).Err() })
	}
	return in.answersBusy(ctx)
}

// aside is a client of its own that waits for its answers, and repeats nothing.
func (in *Injection) aside() *redis.Client {
	o := *in.Admin().Options()
	o.MaxRetries, o.ReadTimeout = -1, in.For+answerBound
	return redis.NewClient(&o)
}

// blocked runs what blocks the server, and asks something meanwhile: the fault has its effect when that has waited.
func (in *Injection) blocked(ctx context.Context, block func(context.Context) error) error {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), in.For+answerBound)
	defer cancel()
	aside := in.aside()
	defer aside.Close()
	done := make(chan error, 1)
	go func() { done <- block(after) }()
	for {
		asked := time.Now()
		if err := aside.Ping(after).Err(); err == nil && time.Since(asked) >= in.For/2 {
			in.Bites()
		}
		select {
		case err := <-done:
			return err
		case <-time.After(time.Millisecond):
		}
	}
}

// answerBound is how long the server may take to answer when it could.
const answerBound = 15 * time.Second

// answersBusy has a script run without end, so that the server tells others that it is busy, and ends it.
func (in *Injection) answersBusy(ctx context.Context) error {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), in.For+2*answerBound)
	defer cancel()
	const setting = "lua-time-limit" // its name since Redis 2.6; 7.0 has a second one
	before, err := in.Admin().ConfigGet(after, setting).Result()
	if err != nil {
		return err
	}
	if err := in.Admin().ConfigSet(after, setting, "50").Err(); err != nil {
		return err
	}
	aside := in.aside()
	defer aside.Close()
	over := time.Now().Add(in.For)
	var script sync.WaitGroup
	script.Go(func() { _ = aside.Eval(after, "while true do end", nil).Err() }) // it is killed
	busy := in.Until(after, answerBound, func() bool { return saysBusy(aside.Ping(after).Err()) })
	if busy {
		in.Bites()
		in.Wait(ctx, time.Until(over))
	}
	ended := in.Until(after, answerBound, func() bool {
		_ = aside.ScriptKill(after).Err()
		return aside.Ping(after).Err() == nil
	})
	script.Wait()
	if !ended {
		return errStillBusy
	}
	return in.Admin().ConfigSet(after, setting, before[setting]).Err()
}

var errStillBusy = errors.New("the server is still busy with a script that was to be killed")

func saysBusy(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "BUSY") }

func pauseClients(ctx context.Context, in *Injection) error {
	in.Begin("", 0, record.Outage, record.Lossy)
	if err := in.Admin().Do(ctx, "CLIENT", "PAUSE", in.For.Milliseconds(), "ALL").Err(); err != nil {
		return err
	}
	aside := in.aside()
	defer aside.Close()
	return in.blocked(ctx, func(ctx context.Context) error { return aside.Ping(ctx).Err() })
}

// refuseConnections lets nobody in but one connection of its own.
func refuseConnections(ctx context.Context, in *Injection) error {
	after := context.WithoutCancel(ctx)
	mine := in.Admin().Conn()
	defer mine.Close()
	before, err := mine.ConfigGet(ctx, "maxclients").Result()
	if err != nil {
		return err
	}
	refused := rejected(ctx, mine)
	in.Begin("", 0, record.Outage, record.Lossy)
	if err := mine.ConfigSet(ctx, "maxclients", "1").Err(); err != nil {
		return err
	}
	killed, err := mine.ClientKillByFilter(after, "TYPE", "normal", "SKIPME", "yes").Result()
	over := time.Now().Add(in.For)
	if in.Until(ctx, in.For, func() bool { return rejected(after, mine) > refused }) && killed > 0 {
		in.Bites()
	}
	in.Wait(ctx, time.Until(over))
	if err2 := mine.ConfigSet(after, "maxclients", before["maxclients"]).Err(); err2 != nil {
		return err2
	}
	return err
}

// rejected is how many connections the server has refused so far, as it counts them.
func rejected(ctx context.Context, conn *redis.Conn) int64 {
	info, err := conn.Info(ctx, "stats").Result()
	_, rest, found := strings.Cut(info, "rejected_connections:")
	number, _, _ := strings.Cut(rest, "\r")
	n, err2 := strconv.ParseInt(number, 10, 64)
	if err != nil || err2 != nil || !found {
		return 0
	}
	return n
}

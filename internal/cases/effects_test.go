package cases

import (
	"context"
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/reliable"
)

// theEffect is the name of the one effect that the jobs of a case have.
const theEffect = "effect"

// withTheAck says of which jobs the effect is written down together with the ack: every second one.
func withTheAck(id string) bool { return (id[len(id)-1]-'0')%2 == 1 }

// effect is an INCR for the job in another database than the queue's, where kills cannot hide it. It returns how many
// there have been.
func (w *crashWorker) effect(ctx context.Context, job *reliable.Job) (int64, error) {
	return w.beside.HIncrBy(ctx, w.key("effects"), job.ID, 1).Result()
}

// happened looks an effect up where it is made.
func (w *crashWorker) happened(ctx context.Context, job *reliable.Job) (times int64, happened bool, err error) {
	times, err = w.beside.HGet(ctx, w.key("effects"), job.ID).Int64()
	if err == redis.Nil {
		return 0, false, nil
	}
	return times, times > 0, err
}

// effects is how often each job had its effect.
func (s *crashSite) effects(t testing.TB) map[string]string {
	t.Helper()
	all, err := s.beside.HGetAll(t.Context(), s.key("effects")).Result()
	require.NoError(t, err)
	return all
}

// each is a map of all numbered items to one value.
func each(items []reliable.Item, value string) map[string]string {
	all := map[string]string{}
	for _, item := range items {
		all[item.ID] = value
	}
	return all
}

// onceRecord is the record of a job's effects; empty where there is none.
func (l *lane) onceRecord(id string) map[string]string {
	l.t.Helper()
	record, err := l.rdb.HGetAll(l.t.Context(), l.keys.Once(id)).Result()
	require.NoError(l.t, err)
	return record
}

// doubtMarks is a log of which nothing is kept but the effects that a worker finds in doubt, as marks.
type doubtMarks struct{ marks string }

func (d *doubtMarks) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

func (d *doubtMarks) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "effect" {
			putMark(d.marks, mark{What: "doubt", ID: a.Value.String(), Note: r.Message})
		}
		return true
	})
	return nil
}

func (d *doubtMarks) WithAttrs([]slog.Attr) slog.Handler { return d }

func (d *doubtMarks) WithGroup(string) slog.Handler { return d }

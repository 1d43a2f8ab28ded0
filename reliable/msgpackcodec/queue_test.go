package msgpackcodec_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
	"github.com/leaseq/leaseq/reliable/msgpackcodec"
)

func (invoice) Kind() string { return "invoice.send" }

type wrongInvoice struct {
	ID string `msgpack:"id"`
}

func (wrongInvoice) Kind() string { return "invoice.send" }

func queue(t *testing.T, name string, codec reliable.Codec) *reliable.Queue {
	t.Helper()
	q, err := reliable.New(redistest.Client(t), name, &reliable.QueueOptions{Codec: codec})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, q.Close(ctx))
	})
	return q
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		require.FailNow(t, "nothing was received")
		panic("unreachable")
	}
}

func run(t *testing.T, q *reliable.Queue, mux *reliable.Mux, hooks *reliable.Hooks) {
	t.Helper()
	c, err := reliable.NewConsumer(q, mux, &reliable.ConsumerOptions{Hooks: hooks})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, receive(t, ended))
	})
}

func TestTypedJobsTravelAsMessagePack(t *testing.T) {
	t.Parallel()
	q := queue(t, redistest.Queue(t), msgpackcodec.Codec)
	in := fullInvoice()
	made, err := reliable.Enqueue(t.Context(), q, in, &reliable.EnqueueOptions{Headers: map[string]string{"trace": "1"}})
	require.NoError(t, err)
	infos, err := q.Inspect(t.Context(), made.ID)
	require.NoError(t, err)
	want, err := msgpackcodec.Codec.Marshal(in)
	require.NoError(t, err)
	require.Equal(t, want, infos[0].Payload, "what is stored is MessagePack, as it is")

	mux := reliable.NewMux()
	got := make(chan invoice, 1)
	require.NoError(t, reliable.Handle(mux, func(_ context.Context, job *reliable.Job, i invoice) error {
		got <- i
		return nil
	}, nil))
	run(t, q, mux, nil)
	require.Equal(t, in, receive(t, got))
}

func TestAPayloadThatIsNoMessagePackIsBuriedWithItsReasonAndKept(t *testing.T) {
	t.Parallel()
	q := queue(t, redistest.Queue(t), msgpackcodec.Codec)
	mux := reliable.NewMux()
	require.NoError(t, reliable.Handle(mux, func(context.Context, *reliable.Job, invoice) error {
		t.Error("a bad payload has reached the handler")
		return nil
	}, nil))
	dead := make(chan reliable.Event, 10)
	run(t, q, mux, &reliable.Hooks{OnDead: func(_ context.Context, e reliable.Event) { dead <- e }})
	wrong, err := msgpackcodec.Codec.Marshal(wrongInvoice{"text"})
	require.NoError(t, err)
	for payload, reason := range map[string]string{
		`{"id":5}`:              "bad payload: msgpack: the value ends at byte 1 of 8",
		"":                      "bad payload: msgpack: the payload is empty",
		"\xdd\xff\xff\xff\xff":  "bad payload: msgpack: it ends early: at byte 0 more is announced than the 0 bytes that follow",
		string(wrong):           "bad payload: msgpack: ",
		"\x81\xa5lines\x91\xc1": "bad payload: msgpack: at byte 8: 0xc1 begins no value",
	} {
		made, err := q.Enqueue(t.Context(), reliable.Item{Kind: "invoice.send", Payload: []byte(payload)})
		require.NoError(t, err)
		e := receive(t, dead)
		require.Equal(t, made.ID, e.ID)
		infos, err := q.Inspect(t.Context(), made.ID)
		require.NoError(t, err)
		require.Equal(t, reliable.Dead, infos[0].Place)
		require.Equal(t, payload, string(infos[0].Payload))
		require.Len(t, infos[0].Errors, 1)
		require.Contains(t, infos[0].Errors[0].Reason, reason)
		require.Equal(t, 1, infos[0].Failures)
	}
}

func TestAQueueOfJSONAndOneOfMessagePackDoNotMix(t *testing.T) {
	t.Parallel()
	name := redistest.Queue(t)
	producer, worker := queue(t, name, nil), queue(t, name, msgpackcodec.Codec)
	made, err := reliable.Enqueue(t.Context(), producer, invoice{ID: math.MaxInt64}, nil)
	require.NoError(t, err)
	mux := reliable.NewMux()
	require.NoError(t, reliable.Handle(mux, func(context.Context, *reliable.Job, invoice) error { return nil }, nil))
	dead := make(chan reliable.Event, 1)
	run(t, worker, mux, &reliable.Hooks{OnDead: func(_ context.Context, e reliable.Event) { dead <- e }})
	e := receive(t, dead)
	require.Equal(t, made.ID, e.ID)
	var bad *reliable.BadPayloadError
	require.ErrorAs(t, e.Err, &bad)
}

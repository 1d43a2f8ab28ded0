package lease

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/internal/script"
)

// begin makes the record of a job's effects, or any other, as a guard would.
func (b *bench) begin(t testing.TB, key, owner string) {
	t.Helper()
	require.NoError(t, b.rdb.HSet(context.Background(), key, "owner", owner, "until", "7", "e:x", "s").Err())
	require.NoError(t, b.rdb.PExpire(context.Background(), key, time.Hour).Err())
}

// begun makes one for each lease that the lease's token owns, and returns what is to be attached to say that it is done.
func (b *bench) begun(t testing.TB, l Lease) *Attached {
	t.Helper()
	key := b.keys.Once(l.ID)
	b.begin(t, key, l.Token)
	return &Attached{Key: key, Owner: l.Token, Fields: []string{"e:x", "d", "result", "\x00\xff\r\n"}, TTL: 2 * time.Hour}
}

// kept is what a record holds; nil where there is none.
func (b *bench) kept(t testing.TB, key string) map[string]string {
	t.Helper()
	got, err := b.rdb.HGetAll(context.Background(), key).Result()
	require.NoError(t, err)
	if len(got) == 0 {
		return nil
	}
	return got
}

func (b *bench) ttl(t testing.TB, key string) time.Duration {
	t.Helper()
	got, err := b.rdb.PTTL(context.Background(), key).Result()
	require.NoError(t, err)
	return got
}

// started and finished are what a record holds before and after what begun says.
func started(owner string) map[string]string {
	return map[string]string{"owner": owner, "until": "7", "e:x": "s"}
}

func finished(owner string) map[string]string {
	return map[string]string{"owner": owner, "until": "7", "e:x": "d", "result": "\x00\xff\r\n"}
}

func with(v Verdict, a *Attached) Verdict {
	v.Attached = a
	return v
}

var allOps = []Op{Ack, Nack, Release, Bury}

func TestARecordIsChangedInTheStepThatEndsItsLease(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for _, op := range allOps {
			b.put(t, string(op))
			l := b.take(t, 1)[0]
			a := b.begun(t, l)
			v := with(verdict(op, l), a)
			v.Delay = time.Hour
			want := map[Op]Settled{Ack: {}, Nack: {Place: Due}, Release: {Place: Due}, Bury: {Place: Dead}}[op]
			if op == Nack || op == Release {
				assert.Equal(t, want, b.settle(t, v)[0])
			} else {
				v.Delay = 0
				assert.Equal(t, want, b.settle(t, v)[0])
			}
			assert.Equal(t, finished(l.Token), b.kept(t, a.Key), string(op))
			assert.Greater(t, b.ttl(t, a.Key), time.Hour)
			assert.LessOrEqual(t, b.ttl(t, a.Key), 2*time.Hour)
		}
		assert.Zero(t, b.count(t, "refused_records"))
	})
}

func TestAnAckWhoseRecordHasAnotherOwnerChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "other", "gone", "string", "fine")
		l := b.take(t, 4)
		all := make([]*Attached, 4)
		for i := range l {
			all[i] = b.begun(t, l[i])
		}
		b.begin(t, all[0].Key, "somebody")
		require.NoError(t, b.rdb.Del(t.Context(), all[1].Key, all[2].Key).Err())
		b.publish(t, Policy{MaxRetries: ptr(0)})
		before := b.dump(t)
		was := b.ttl(t, all[0].Key)
		for i := range 2 {
			got := b.settle(t, with(verdict(Ack, l[i]), all[i]))[0]
			require.ErrorIs(t, got.Err, ErrRecord)
			assert.NotErrorIs(t, got.Err, ErrLost, "the lease goes on")
			assert.Equal(t, &RecordError{ID: l[i].ID, Key: all[i].Key}, got.Err)
			assert.Contains(t, got.Err.Error(), l[i].ID)
		}
		assert.Equal(t, before, b.dump(t), "neither the job nor the record")
		assert.LessOrEqual(t, b.ttl(t, all[0].Key), was)
		assert.Equal(t, 2, b.count(t, "refused_records"))
		assert.Zero(t, b.count(t, "refused"))

		require.NoError(t, b.rdb.Set(t.Context(), all[2].Key, "by somebody's hand", time.Hour).Err())
		before = b.dump(t)
		got := b.settle(t, with(verdict(Ack, l[2]), all[2]), with(verdict(Ack, l[3]), all[3]))
		require.ErrorIs(t, got[0].Err, ErrRecord)
		assert.Equal(t, Settled{}, got[1], "items never fail each other")
		assert.Equal(t, before[all[2].Key], b.dump(t)[all[2].Key])
		assert.Equal(t, finished(l[3].Token), b.kept(t, all[3].Key))
		require.NoError(t, b.rdb.Del(t.Context(), all[2].Key).Err())

		extended, err := b.Extend(t.Context(), time.Hour, []Held{held(l[0])})
		require.NoError(t, err)
		require.NoError(t, extended.Results[0], "it can be extended")
		assert.Equal(t, []Settled{{}, {Place: Due}}, b.settle(t, verdict(Ack, l[0]), verdict(Release, l[1])), "and settled otherwise")
	})
}

func TestWhatIsNoAckGoesItsWayWhoeverOwnsTheRecord(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for _, op := range allOps[1:] {
			for _, there := range []bool{true, false} {
				id := string(op)
				b.put(t, id)
				l := b.take(t, 1)[0]
				a := b.begun(t, l)
				if b.begin(t, a.Key, "somebody"); !there {
					require.NoError(t, b.rdb.Del(t.Context(), a.Key).Err())
				}
				was := b.kept(t, a.Key)
				require.NoError(t, b.settle(t, with(verdict(op, l), a))[0].Err)
				assert.Equal(t, was, b.kept(t, a.Key))
				assert.LessOrEqual(t, b.ttl(t, a.Key), time.Hour)
				_, err := b.Cancel(t.Context(), []string{id})
				require.NoError(t, err)
			}
		}
		assert.Zero(t, b.count(t, "refused_records"))
	})
}

func TestARefusedSettleLeavesItsRecordAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b")
		l := b.take(t, 2)
		a := b.begun(t, l[0])
		b.begun(t, l[1])
		b.expireAll(t, l[0]) // it is in due now
		before := b.dump(t)
		for _, op := range allOps {
			stranger := Lease{ID: l[1].ID, Token: l[0].Token}
			got := b.settle(t, with(verdict(op, l[0]), a), with(verdict(op, stranger), a), with(verdict(op, Lease{ID: "none", Token: l[0].Token}), a))
			assert.Equal(t, &LostError{ID: l[0].ID, Place: Due}, got[0].Err)
			assert.Equal(t, &LostError{ID: l[1].ID, Place: Processing}, got[1].Err)
			assert.Equal(t, ErrGone, got[2].Err)
		}
		assert.Equal(t, before, b.dump(t))
		assert.LessOrEqual(t, b.ttl(t, a.Key), time.Hour)
		assert.Equal(t, 12, b.count(t, "refused"))
	})
}

func TestOfACancelledJobAnAckChangesTheRecordAndTheOthersDeleteTheJobsOwn(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for _, op := range allOps {
			b.put(t, "own", "guard", "other")
			l := b.take(t, 3)
			var verdicts []Verdict
			byID := map[string]*Attached{}
			for i := range l {
				byID[l[i].ID] = b.begun(t, l[i])
				verdicts = append(verdicts, with(verdict(op, l[i]), byID[l[i].ID]))
			}
			guard := byID["guard"]
			require.NoError(t, b.rdb.Rename(t.Context(), guard.Key, b.keys.Guard("guard")).Err())
			guard.Key = b.keys.Guard("guard")
			if op != Ack {
				b.begin(t, byID["other"].Key, "somebody")
			}
			_, err := b.Cancel(t.Context(), []string{"own", "guard", "other"})
			require.NoError(t, err)
			want := Settled{Cancelled: true}
			if op == Ack {
				want = Settled{}
			}
			assert.Equal(t, []Settled{want, want, want}, b.settle(t, verdicts...))
			assert.Equal(t, finished(guard.Owner), b.kept(t, guard.Key), "it may be another job's next")
			if op == Ack {
				assert.Equal(t, finished(byID["own"].Owner), b.kept(t, byID["own"].Key))
			} else {
				assert.Nil(t, b.kept(t, byID["own"].Key))
				assert.Equal(t, started("somebody"), b.kept(t, byID["other"].Key), "not this holder's to delete")
			}
			require.NoError(t, b.rdb.Del(t.Context(), b.keys.Once("own"), b.keys.Once("other"), guard.Key).Err())
		}
	})
}

func TestACancelledJobIsNotAckedWithoutItsRecord(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a")
		l := b.take(t, 1)[0]
		a := b.begun(t, l)
		b.begin(t, a.Key, "somebody")
		_, err := b.Cancel(t.Context(), []string{"a"})
		require.NoError(t, err)
		before := b.dump(t)
		require.ErrorIs(t, b.settle(t, with(verdict(Ack, l), a))[0].Err, ErrRecord)
		assert.Equal(t, before, b.dump(t))
		assert.Equal(t, Settled{Cancelled: true}, b.settle(t, verdict(Release, l))[0])
	})
}

func TestItemsOfABatchActInOrderOnOneRecord(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b", "c")
		l := b.take(t, 3)
		key := b.keys.Guard("shared")
		b.begin(t, key, l[0].Token)
		pass := func(l Lease, to string) Verdict {
			return with(verdict(Ack, l), &Attached{Key: key, Owner: l.Token, Fields: []string{"owner", to}})
		}
		got := b.settle(t, pass(l[1], "x"), pass(l[0], l[2].Token), pass(l[0], "y"), pass(l[2], "z"), pass(l[1], "w"))
		require.ErrorIs(t, got[0].Err, ErrRecord)
		assert.NoError(t, got[1].Err)
		assert.Equal(t, ErrGone, got[2].Err, "its lease has ended")
		assert.NoError(t, got[3].Err, "it got the record from the one before")
		require.ErrorIs(t, got[4].Err, ErrRecord)
		assert.Equal(t, started("z"), b.kept(t, key))
		assert.LessOrEqual(t, b.ttl(t, key), time.Hour, "a TTL of 0 leaves it")
		again := b.settle(t, pass(l[1], "x"), verdict(Nack, l[1]))
		require.ErrorIs(t, again[0].Err, ErrRecord)
		assert.Equal(t, Settled{Place: Due}, again[1], "a refused ack is followed by another verdict on the same lease")
	})
}

func TestAnAckAndAClaimOfOneRoundTripCarryTheRecord(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.put(t, "a", "b")
		l := b.take(t, 1)[0]
		a := b.begun(t, l)
		done, settleErr, jobs, claimErr := b.Exchange(t.Context(), []Verdict{with(verdict(Ack, l), a)}, 1, nil)
		require.NoError(t, settleErr)
		require.NoError(t, claimErr)
		assert.Equal(t, []Settled{{}}, done)
		assert.Len(t, jobs.Jobs, 1)
		assert.Equal(t, finished(l.Token), b.kept(t, a.Key))
	})
}

func TestAThousandItemsCarryARecordEach(t *testing.T) {
	onBothWith(t, redistest.MiniForEver, func(t *testing.T, b *bench) {
		b.put(t, names("j", MaxBatch)...)
		l := b.takeAll(t, MaxBatch) // miniredis can take longer than a claim waits: the next one is for half
		verdicts, holds := make([]Verdict, len(l)), make([]Held, len(l))
		for i := range l {
			verdicts[i] = with(verdict(Ack, l[i]), b.begun(t, l[i]))
			holds[i] = Held{ID: l[i].ID, Token: l[i].Token, Attached: &Attached{Key: b.keys.Once(l[i].ID), Owner: l[i].Token, Expiry: "until"}}
		}
		got, err := b.Extend(t.Context(), time.Hour, holds)
		require.NoError(t, err)
		for i, err := range got.Results {
			require.NoError(t, err, "%d", i)
		}
		for i, one := range b.settle(t, verdicts...) {
			require.Equal(t, Settled{}, one, "%d", i)
		}
		last := b.kept(t, verdicts[MaxBatch-1].Attached.Key)
		assert.Equal(t, "d", last["e:x"])
		assert.NotEqual(t, "7", last["until"])
	})
}

func TestWhatCannotBeAttachedIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	b, proxy := behindProxy(t, nil)
	b.put(t, "a", "b")
	l := b.take(t, 2)
	fine := b.begun(t, l[0])
	before, sent := b.dump(t), proxy.Commands()
	for want, change := range map[string]func(a *Attached){
		"does not begin with leaseq:v1:{": func(a *Attached) { a.Key = "leaseq:v1:{other}:once:a" },
		"no idempotency record":           func(a *Attached) { a.Key = b.key("jobs") },
		"is empty":                        func(a *Attached) { a.Key = b.keys.Once("") },
		"has 0 bytes: want 1 to 512":      func(a *Attached) { a.Owner = "" },
		"has 513 bytes":                   func(a *Attached) { a.Owner = strings.Repeat("x", 513) },
		"1 names and values":              func(a *Attached) { a.Fields = []string{"x"} },
		"130 names and values":            func(a *Attached) { a.Fields = make([]string, 130) },
		"time to live is -1ns: want 0":    func(a *Attached) { a.TTL = -1 },
	} {
		bad := *fine
		change(&bad)
		_, err := b.Settle(t.Context(), []Verdict{verdict(Ack, l[1]), with(verdict(Ack, l[0]), &bad)})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "settle "+l[0].ID)
		_, err = b.Extend(t.Context(), 0, []Held{held(l[1]), {ID: l[0].ID, Token: l[0].Token, Attached: &bad}})
		require.ErrorContains(t, err, want)
	}
	large := strings.Repeat("x", MaxBytes/2)
	one := &Attached{Key: fine.Key, Owner: fine.Owner, Fields: []string{"a", large, "b", large}}
	two := &Attached{Key: b.keys.Once("b"), Owner: "x", Fields: []string{"a", "b"}}
	_, err := b.Settle(t.Context(), []Verdict{with(verdict(Ack, l[0]), one), with(verdict(Nack, l[1]), two)})
	var tooLarge *TooLargeError
	require.ErrorAs(t, err, &tooLarge)
	assert.Equal(t, MaxBytes, tooLarge.Limit)
	assert.Equal(t, before, b.dump(t))
	assert.Equal(t, sent, proxy.Commands())
	require.NoError(t, b.settle(t, with(verdict(Ack, l[0]), one))[0].Err, "one alone may be larger")
}

func TestWithoutRecordsACallIsWhatItWasBefore(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	call, err := b.settleCall([]Verdict{{Op: Ack, ID: "a", Token: "1:s:1"}, {Op: Release, ID: "b", Token: "2:s:1"}})
	require.NoError(t, err)
	text := func(s string) *string { return &s }
	assert.Equal(t, []any{[]byte("stub"), "a", text("a"), text("1:s:1"), "r", text("b"), text("2:s:1"), "0", ""}, call.Args)
	assert.Empty(t, call.Records)
	req, err := b.extendRequest(time.Second, []Held{{ID: "a", Token: "1:s:1"}})
	require.NoError(t, err)
	assert.Equal(t, &script.Request{Script: extendScript, Args: []any{int64(1000), "a", "1:s:1"}}, req)
}

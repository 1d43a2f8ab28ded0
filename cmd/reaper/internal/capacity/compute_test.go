package capacity

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// answer computes what the default plan, changed, needs with round costs.
func answer(t *testing.T, change func(p *Plan)) *Answer {
	t.Helper()
	p := DefaultPlan()
	change(&p)
	a, err := round().Compute(&p)
	require.NoError(t, err)
	return a
}

func TestAPlanIsMultipliedOut(t *testing.T) {
	t.Parallel()
	a := answer(t, func(p *Plan) {
		p.Rate, p.Payload, p.Delay, p.Concurrency, p.NodeMemory = 10_000, 1_000, 100*time.Second, 100, 1
		p.Work, p.RoundTrip = 10*time.Millisecond, 20*time.Millisecond // more than 50 jobs: as measured
	})
	assert.Equal(t, 1e6, a.Waiting)
	assert.Equal(t, 100.0, a.Processing)
	assert.InDelta(t, 1250, a.BytesPerJob, 1e-9)
	assert.InDelta(t, 1250e6+100*1400, a.MemoryNeeded, 1e-3)
	assert.InDelta(t, 2*a.MemoryNeeded, a.Memory, 1e-3)
	assert.EqualValues(t, 3, a.NodesForMemory, "2.5 GB in nodes of 1 GiB")
	assert.InDelta(t, 50, a.JobsPerTrip, 1e-9)
	assert.InDelta(t, 50+3+0.5*4*0.8, a.EnqueueUS, 1e-9, "one job a call, a million in due, 800 bytes more than measured")
	assert.InDelta(t, 10+6+0.5*4*0.8, a.WorkUS, 1e-9)
	assert.InDelta(t, 4*0.01/5, a.ExtendUS, 1e-9, "a beat every 5 s")
	assert.InDelta(t, a.EnqueueUS+a.WorkUS+a.ExtendUS, a.ServerUS, 1e-9)
	assert.InDelta(t, 0.72208, a.CoresNeeded, 1e-9)
	assert.InDelta(t, 1e6/72.208/2, a.CoreRate, 1e-9)
	assert.EqualValues(t, 2, a.NodesForCPU)
	assert.EqualValues(t, 3, a.Nodes)
	assert.EqualValues(t, 3, a.Partitions)
	assert.InDelta(t, 500+118+800, a.InPerJob, 1e-9)
	assert.InDelta(t, 20+302+800, a.OutPerJob, 1e-9)
	assert.InDelta(t, 1e4*a.InPerJob, a.In, 1e-6)
	assert.InDelta(t, 1e4*a.OutPerJob, a.Out, 1e-6)
	assert.InDelta(t, 90, a.ClientUS, 1e-9)
	assert.EqualValues(t, 2, a.ClientCores)
	assert.EqualValues(t, 200, a.Handlers)
	assert.EqualValues(t, 3, a.Consumers, "one for each partition")
}

func TestManyConsumersMakeRoundTripsSmall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		work, trip time.Duration
		consumers  int64
		jobs, us   float64
	}{
		{0, time.Second, 2, 50, 10},
		{0, time.Millisecond, 2, 5, 10 + 90*(0.2-0.02)/0.98},
		{10 * time.Millisecond, time.Millisecond, 2, 5, 10 + 90*(0.2-0.02)/0.98},
		{time.Second, time.Millisecond, 200, 1, 100},
	} {
		a := answer(t, func(p *Plan) { p.Work, p.RoundTrip, p.Concurrency = c.work, c.trip, 100 })
		assert.Equal(t, c.consumers, a.Consumers, c)
		assert.InDelta(t, c.jobs, a.JobsPerTrip, 1e-9, c)
		assert.InDelta(t, c.us, a.WorkUS, 1e-9, c)
	}
}

func TestPartitionsHoldNoMoreThanTheyMay(t *testing.T) {
	t.Parallel()
	a := answer(t, func(p *Plan) { p.Waiting = 1e9 })
	assert.Equal(t, 1e9, a.Waiting)
	assert.EqualValues(t, 1000, a.Partitions)
	assert.InDelta(t, 53, a.EnqueueUS, 1e-9, "as with a million in due")
	a = answer(t, func(p *Plan) { p.Waiting, p.Partition = 1e9, 10_000_000 })
	assert.EqualValues(t, 100, a.Partitions)
	assert.InDelta(t, 63, a.EnqueueUS, 1e-9, "as with ten million")
}

func TestCostsGrowWithTheLogarithmOfTheJobs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ waiting, enqueue, work float64 }{
		{0, 0, 0}, {1_000, 0, 0}, {10_000, 1, 1}, {100_000, 2, 3.5}, {1_000_000, 3, 6}, {10_000_000, 13, 26}, {1e12, 13, 26},
	} {
		enqueue, work := round().growth(c.waiting)
		assert.InDelta(t, c.enqueue, enqueue, 1e-9, c.waiting)
		assert.InDelta(t, c.work, work, 1e-9, c.waiting)
	}
}

func TestMemoryFollowsPayloadAndID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		payload, id int
		want        float64
	}{
		{0, 26, 200}, {100, 26, 300}, {550, 26, 775}, {10_000, 26, 10_500}, {20_000, 26, 21_000}, {100, 6, 270}, {100, 1, 270},
		{100, 256, 990}, {100, 141, 645},
	} {
		a := answer(t, func(p *Plan) { p.Payload, p.ID = c.payload, c.id })
		assert.InDelta(t, c.want, a.BytesPerJob, 1e-9, c)
	}
}

func TestTheLargestPlanIsComputed(t *testing.T) {
	t.Parallel()
	a := answer(t, func(p *Plan) {
		p.Rate, p.Payload, p.ID, p.Waiting = mostRate, mostPayload, mostID, mostWaiting
		p.Work, p.Lease, p.Concurrency, p.Headroom, p.NodeMemory, p.Partition = mostLease, leastLease, 1, mostHeadroom, 1, leastPartition
	})
	for _, v := range []float64{a.Waiting, a.MemoryNeeded, a.Memory, a.ServerUS, a.CoresNeeded, a.In, a.Out} {
		assert.False(t, math.IsInf(v, 0) || math.IsNaN(v))
		assert.Positive(t, v)
	}
	for _, n := range []int64{a.Nodes, a.NodesForCPU, a.NodesForMemory, a.Partitions, a.ClientCores, a.Handlers, a.Consumers} {
		assert.Positive(t, n, "no overflow")
	}
	least := answer(t, func(p *Plan) {
		p.Rate, p.Payload, p.ID, p.Work, p.Headroom, p.EnqueueBatch = 1e-9, 0, 1, 0, 1, mostBatch
	})
	assert.EqualValues(t, 1, least.Nodes)
	assert.EqualValues(t, 1, least.Partitions)
	assert.Zero(t, least.Waiting)
	assert.InDelta(t, 14, least.EnqueueUS, 1e-9, "no larger call was measured")
}

func TestWrongPlansAreRefusedWithWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(p *Plan)
		want   string
	}{
		{func(p *Plan) { p.Rate = 0 }, "--rate 0: want more than 0 and at most 1000000000 jobs a second"},
		{func(p *Plan) { p.Rate = -1 }, "--rate -1: want more than 0"},
		{func(p *Plan) { p.Rate = math.NaN() }, "--rate NaN: want"},
		{func(p *Plan) { p.Rate = math.Inf(1) }, "--rate +Inf: want"},
		{func(p *Plan) { p.Rate = 1.1e9 }, "--rate 1.1e+09: want"},
		{func(p *Plan) { p.Payload = -1 }, "--payload -1: want 0 to 268435456 bytes"},
		{func(p *Plan) { p.Payload = mostPayload + 1 }, "--payload 268435457: want"},
		{func(p *Plan) { p.ID = 0 }, "--id 0: want 1 to 256 bytes"},
		{func(p *Plan) { p.Delay = -time.Second }, "--delay -1s: want 0s to 876000h0m0s"},
		{func(p *Plan) { p.Delay = math.MaxInt64 }, "--delay"},
		{func(p *Plan) { p.Waiting = -1 }, "--waiting -1: want 1 to 1000000000000000 jobs"},
		{func(p *Plan) { p.Waiting = mostWaiting + 1 }, "--waiting 1000000000000001: want"},
		{func(p *Plan) { p.Waiting, p.Delay = 5, time.Second }, "--waiting 5 and --delay 1s: want one of them"},
		{func(p *Plan) { p.Rate, p.Delay = 1e9, mostDelay }, "jobs that wait: want at most 1000000000000000"},
		{func(p *Plan) { p.Concurrency = 0 }, "--concurrency 0: want 1 to 10000"},
		{func(p *Plan) { p.Concurrency = 10_001 }, "--concurrency 10001: want"},
		{func(p *Plan) { p.Work = -1 }, "--work -1ns: want 0s to 24h0m0s"},
		{func(p *Plan) { p.Lease = time.Millisecond }, "--lease 1ms: want 20ms to 24h0m0s"},
		{func(p *Plan) { p.RoundTrip = 2 * time.Second }, "--round-trip 2s: want 0s to 1s"},
		{func(p *Plan) { p.EnqueueBatch = 1001 }, "--enqueue-batch 1001: want 1 to 1000 jobs a call"},
		{func(p *Plan) { p.Headroom = 0.9 }, "--headroom 0.9: want 1 to 100"},
		{func(p *Plan) { p.Headroom = math.NaN() }, "--headroom NaN: want"},
		{func(p *Plan) { p.NodeMemory = 0 }, "--node-memory 0: want 1 to 1048576 GiB"},
		{func(p *Plan) { p.Partition = 999 }, "--partition 999: want 1000 to 100000000 jobs in each partition"},
	} {
		p := DefaultPlan()
		c.change(&p)
		_, err := round().Compute(&p)
		require.ErrorContains(t, err, c.want)
	}
	p := Plan{}
	err := p.Check()
	for _, flag := range []string{"--rate", "--id", "--concurrency", "--lease", "--enqueue-batch", "--headroom", "--node-memory", "--partition"} {
		require.ErrorContains(t, err, flag, "everything that is wrong is said at once")
	}
	p = DefaultPlan()
	require.NoError(t, p.Check())
}

func TestBetweenKnotsAreStraightLines(t *testing.T) {
	t.Parallel()
	up, down := []knot{{1, 10}, {2, 20}, {4, 0}}, []knot{{4, 0}, {2, 20}, {1, 10}}
	for _, c := range []struct{ x, want float64 }{{0, 10}, {1, 10}, {1.5, 15}, {2, 20}, {3, 10}, {4, 0}, {9, 0}} {
		assert.InDelta(t, c.want, between(up, c.x), 1e-9, c.x)
		assert.InDelta(t, c.want, between(down, c.x), 1e-9, c.x)
	}
	assert.InDelta(t, 7.0, between([]knot{{3, 7}}, 100), 1e-9)
}

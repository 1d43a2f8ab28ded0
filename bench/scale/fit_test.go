package main

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func curve(of func(n float64) float64) (points []point) {
	for n := 1e3; n <= 1e7; n *= 10 {
		points = append(points, point{n, of(n)})
	}
	return points
}

func TestTheNearestLogarithmIsFound(t *testing.T) {
	base, slope := fitLog(curve(func(n float64) float64 { return 40 + 3*math.Log2(n) }))
	require.InDelta(t, 40, base, 1e-6)
	require.InDelta(t, 3, slope, 1e-6)
	base, slope = fitLog([]point{{1000, 7}})
	require.Equal(t, []float64{7, 0}, []float64{base, slope})
	base, slope = fitLog(nil)
	require.Zero(t, base+slope)
	base, slope = line([]float64{0, 1, 10}, []float64{5, 7, 25})
	require.InDelta(t, 5, base, 1e-6)
	require.InDelta(t, 2, slope, 1e-6)
}

func TestGrowthIsToldApart(t *testing.T) {
	flat := curve(func(float64) float64 { return 50 })
	log := curve(math.Log)
	root := curve(math.Sqrt)
	linear := curve(func(n float64) float64 { return n })
	require.InDelta(t, 0, exponent(flat), 1e-9)
	require.InDelta(t, 0.092, exponent(log), 0.001)
	require.InDelta(t, 0.5, exponent(root), 1e-9)
	require.InDelta(t, 1, exponent(linear), 1e-9)
	require.Less(t, excess(flat), 1.0)
	require.InDelta(t, 1, excess(log), 1e-9)
	require.Greater(t, excess(root), 40.0)
	require.Greater(t, excess(linear), 4000.0)
	require.Greater(t, excess(curve(func(n float64) float64 { return 1000 + n })), 2.5, "a part in proportion is found behind a fixed one")
	require.Zero(t, exponent(nil)+excess(nil)+exponent([]point{{1, 1}})+excess([]point{{1000, 0}, {10000, 1}}))
}

func TestSamplesAreSummedUp(t *testing.T) {
	var samples []sample
	for i := 1; i <= 100; i++ {
		us := time.Duration(i) * time.Microsecond
		samples = append(samples, sample{client: 3 * us, server: us, ran: 2 * us, alone: true})
	}
	c := summarise(callKey{opClaim, 50}, 1000, samples)
	require.Equal(t, cost{
		Op: opClaim, Batch: 50, Size: 1000, Calls: 100, Server: 50, Mean: 50.5, P99: 99, Max: 100, Longest: 100, CPU: 100, Client: 150,
		PerJob: 1, CPUPerJob: 2,
	}, c)
}

func TestWhatIsNotAsItHasToBeIsSaid(t *testing.T) {
	right := func(op string, batch, size int, server float64) cost {
		return cost{Op: op, Batch: batch, Size: size, Server: server, PerJob: server / float64(batch), Longest: 9_999}
	}
	d := &document{Due: []cost{
		right(opClaim, 50, 1_000, 400), right(opClaim, 256, 1_000, 2_000), right(opClaim, 50, 10_000_000, 800), right(opClaim, 256, 10_000_000, 4_500),
	}}
	require.NoError(t, d.judge())
	d.Due[3].Longest = 10_001
	require.EqualError(t, d.judge(), "claim of 256 with 10000000 jobs in due took up to 10.0 ms of the server, with a median of 4.5: want at most 10ms")
	d.Due[3] = right(opClaim, 256, 10_000_000, 20_000)
	require.ErrorContains(t, d.judge(), "claim of 256 grows 4.3 times as fast as the logarithm of the jobs in due: want at most 1.5, 1.5 times")
	require.ErrorContains(t, d.judge(), "claim of 256 with 10000000 jobs in due costs 78.1 µs a job, and of 50 only 16.0")
	twice := append(slices.Clone(d.Due[:3]), right(opClaim, 256, 10_000_000, 8_000))
	require.ErrorContains(t, (&document{Due: twice}).judge(), "grows 1.7 times")
	twice = append(twice, right(opCount, 1, 1_000, 1_000), right(opCount, 1, 10_000_000, 2_000))
	require.NotContains(t, fmt.Sprint((&document{Due: twice}).judge()), "grows", "the machine was twice as slow then")
	d.Due = append(d.Due, right(opPut, 256, 1_000, 1_000), right(opPut, 256, 10_000_000, 7_000))
	require.NotContains(t, d.judge().Error(), "grows", "bare commands grow as fast here")
	d = &document{Due: []cost{
		{Op: opExtend, Batch: 1, Size: 1000, Server: 100, Longest: 26_000},
		{Op: opCount, Batch: 1, Size: 1000, Server: 4_000, Longest: 9_000}, {Op: opCount, Batch: 1, Size: 5000, Server: 2_000, Longest: 2_000},
	}}
	require.Equal(t, pace{best: 2_000, hiccup: 7_000}, d.pace())
	require.NoError(t, d.judge(), "the machine was twice as slow, and had a hiccup of 7 ms")
	d.Due[0].Longest = 28_000
	require.ErrorContains(t, d.judge(), "took up to 28.0 ms")
	d = &document{Processing: []cost{{Op: opExtend, Batch: 1, Size: 1000, Longest: 11_000}}}
	require.ErrorContains(t, d.judge(), "jobs in processing took up to 11.0 ms")
}

package capacity

import "math"

// An Answer is what a plan needs. What is called Needed is without headroom, everything else that counts whole things
// with it.
type Answer struct {
	Waiting    float64 `json:"jobs_waiting"`
	Processing float64 `json:"jobs_in_processing"`

	BytesPerJob    float64 `json:"bytes_per_job"` // that waits, its payload included
	MemoryNeeded   float64 `json:"memory_needed_bytes"`
	Memory         float64 `json:"memory_bytes"`
	JobsPerTrip    float64 `json:"jobs_per_round_trip"` // of a consumer
	EnqueueUS      float64 `json:"server_us_enqueue"`   // a job
	WorkUS         float64 `json:"server_us_work"`      // claim and settle, a job
	ExtendUS       float64 `json:"server_us_extend"`    // all heartbeats of a job
	ServerUS       float64 `json:"server_us_per_job"`
	CoreRate       float64 `json:"core_jobs_per_s"` // what one core carries, with headroom
	CoresNeeded    float64 `json:"server_cores_needed"`
	NodesForCPU    int64   `json:"nodes_for_cpu"`
	NodesForMemory int64   `json:"nodes_for_memory"`
	Nodes          int64   `json:"nodes"`
	Partitions     int64   `json:"partitions"`

	InPerJob  float64 `json:"network_in_bytes_per_job"` // to Redis
	OutPerJob float64 `json:"network_out_bytes_per_job"`
	In        float64 `json:"network_in_bytes_per_s"`
	Out       float64 `json:"network_out_bytes_per_s"`

	ClientUS          float64 `json:"client_us_per_job"`
	ClientCoresNeeded float64 `json:"client_cores_needed"`
	ClientCores       int64   `json:"client_cores"`
	Handlers          int64   `json:"handlers"`
	Consumers         int64   `json:"consumers"`
}

// Compute answers a plan, which it checks.
func (c *Costs) Compute(p *Plan) (*Answer, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	a := &Answer{Waiting: p.waiting(), Processing: math.Ceil(p.Rate * p.Work.Seconds())}
	c.memory(p, a)
	a.Handlers = up(p.Rate * p.Work.Seconds() * p.Headroom)
	for range mostRounds {
		before := a.Consumers
		a.Nodes = max(a.NodesForCPU, a.NodesForMemory)
		a.Partitions = max(a.Nodes, up(a.Waiting/float64(p.Partition)))
		a.Consumers = max(up(float64(a.Handlers)/float64(p.Concurrency)), a.Partitions)
		if a.Consumers == before {
			break
		}
		c.server(p, a)
	}
	c.network(p, a)
	c.clients(p, a)
	return a, nil
}

// mostRounds bounds how often nodes are counted again: with more of them there are more consumers, which share fewer jobs
// in a round trip, and that costs more. It ends by itself where a round trip has one job.
const mostRounds = 1000

// up rounds up, to at least 1.
func up(v float64) int64 { return max(int64(math.Ceil(v-1e-9)), 1) }

func (c *Costs) memory(p *Plan, a *Answer) {
	a.BytesPerJob = float64(p.Payload) + c.beside(p)
	a.MemoryNeeded = a.Waiting*a.BytesPerJob + a.Processing*(a.BytesPerJob+c.Processing)
	a.Memory = a.MemoryNeeded * p.Headroom
	a.NodesForMemory = up(a.Memory / (float64(p.NodeMemory) * (1 << 30)))
}

// beside is what a job needs beside its payload. Redis' allocator wastes more the larger a payload is: beyond the largest
// one that was measured, in proportion.
func (c *Costs) beside(p *Plan) float64 {
	beside := between(memoryKnots(c.Payloads), float64(p.Payload))
	if last := c.Payloads[len(c.Payloads)-1]; p.Payload > last.Size {
		beside *= float64(p.Payload) / float64(last.Size)
	}
	ids := memoryKnots(c.IDs)
	return beside + between(ids, float64(p.ID)) - between(ids, float64(c.ID))
}

func memoryKnots(list []Memory) (out []knot) {
	for _, m := range list {
		out = append(out, knot{float64(m.Size), m.Beside})
	}
	return out
}

func (c *Costs) server(p *Plan, a *Answer) {
	enqueue, work := c.growth(min(a.Waiting, float64(p.Partition)))
	larger := c.PerKB * float64(max(p.Payload-c.Payload, 0)) / 1000
	a.JobsPerTrip = c.perTrip(p, a.Consumers)
	a.EnqueueUS = c.producer(p, func(s *Spending) float64 { return s.Server }) + enqueue + larger/2
	a.WorkUS = c.consumer(a, func(s *Spending) float64 { return s.Server }) + work + larger/2
	var extend []knot
	for _, e := range c.Extend {
		extend = append(extend, knot{1 / float64(e.Batch), e.Server})
	}
	beats := p.Work.Seconds() / (p.Lease.Seconds() / 3)
	a.ExtendUS = beats * between(extend, 1/float64(p.Concurrency))
	a.ServerUS = a.EnqueueUS + a.WorkUS + a.ExtendUS
	a.CoreRate = 1e6 / a.ServerUS / p.Headroom
	a.CoresNeeded = p.Rate * a.ServerUS / 1e6
	a.NodesForCPU = up(a.CoresNeeded * p.Headroom)
}

// growth is how much more a job costs with so many in due: by the logarithm, between the numbers that were measured.
func (c *Costs) growth(waiting float64) (enqueue, work float64) {
	var enqueues, works []knot
	for _, g := range c.Growth {
		at := math.Log(float64(g.Due))
		enqueues, works = append(enqueues, knot{at, g.Enqueue}), append(works, knot{at, g.Work})
	}
	at := math.Log(max(waiting, 1))
	return between(enqueues, at), between(works, at)
}

// perTrip is how many jobs a consumer settles, and claims, in a round trip: those of its share that finish meanwhile, at
// least one, and at most what it was measured to carry when handlers take no time.
func (c *Costs) perTrip(p *Plan, consumers int64) float64 {
	var trips []knot
	for _, s := range c.Consumers {
		trips = append(trips, knot{1 / float64(s.Concurrency), s.Requests})
	}
	most := 1 / between(trips, 1/float64(p.Concurrency))
	return max(min(most, p.Rate/float64(consumers)*p.RoundTrip.Seconds()), 1)
}

func (c *Costs) producer(p *Plan, of func(*Spending) float64) float64 {
	var knots []knot
	for i := range c.Producers {
		knots = append(knots, knot{1 / float64(c.Producers[i].Batch), of(&c.Producers[i])})
	}
	return between(knots, 1/float64(p.EnqueueBatch))
}

func (c *Costs) consumer(a *Answer, of func(*Spending) float64) float64 {
	var knots []knot
	for i := range c.Consumers {
		knots = append(knots, knot{c.Consumers[i].Requests, of(&c.Consumers[i])})
	}
	return between(knots, 1/a.JobsPerTrip)
}

// network counts the payload once each way, and the ID in the enqueue, in the claim's answer and in the settle.
func (c *Costs) network(p *Plan, a *Answer) {
	in, out := func(s *Spending) float64 { return s.In }, func(s *Spending) float64 { return s.Out }
	payload, id := float64(p.Payload-c.Payload), float64(p.ID-c.ID)
	a.InPerJob = c.producer(p, in) + c.consumer(a, in) + payload + 2*id
	a.OutPerJob = c.producer(p, out) + c.consumer(a, out) + payload + id
	a.In, a.Out = p.Rate*a.InPerJob, p.Rate*a.OutPerJob
}

func (c *Costs) clients(p *Plan, a *Answer) {
	client := func(s *Spending) float64 { return s.Client }
	a.ClientUS = c.producer(p, client) + c.consumer(a, client)
	a.ClientCoresNeeded = p.Rate * a.ClientUS / 1e6
	a.ClientCores = up(a.ClientCoresNeeded * p.Headroom)
}

package main

import (
	"bytes"
	"encoding/json"
	"runtime"
	"time"
)

// headlineConcurrency is the concurrency that the headlines are about.
const headlineConcurrency = 50

// A document is the JSON object that is printed. The headlines are about leaseq; null stands for what was not measured.
type document struct {
	Process50VsAsynq     *float64 `json:"process_50_vs_asynq"`
	Process50VsPop       *float64 `json:"process_50_vs_pop"`
	ServerCPUPerJob      *float64 `json:"server_cpu_us_per_job"`
	Enqueue50VsAsynq     *float64 `json:"enqueue_50_vs_asynq"`
	MemoryOverhead       *float64 `json:"memory_overhead_bytes"`
	IdleLatencyP50       *float64 `json:"idle_latency_p50_ms"`
	IdleCommandsASeconds *float64 `json:"idle_commands_per_s"`

	Quick    bool      `json:"quick"`
	AOF      bool      `json:"aof"`
	Rounds   int       `json:"rounds"`
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"`
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
	CPUs     int       `json:"cpus"`
	Redis    string    `json:"redis"`

	Systems  []string             `json:"systems"`
	Settings map[string][]Setting `json:"settings"`
	Figures  []*figureResult      `json:"figures"`
}

// A figureResult is one figure of all systems. Ratios are of the first system's median to another's.
type figureResult struct {
	Key     string               `json:"key"`
	Title   string               `json:"title"`
	Unit    string               `json:"unit"`
	Systems map[string]*measured `json:"systems"`
	Ratios  map[string]float64   `json:"ratios"`

	place int
	hide  bool
}

// measured is what was measured of one figure of one system.
type measured struct {
	Median float64   `json:"median"`
	Values []float64 `json:"values"`
}

// newDocument gathers the results of a run.
func newDocument(b *bench, quick bool, started time.Time) *document {
	d := &document{
		Quick: quick, AOF: b.aof, Rounds: b.plan.rounds,
		Started: started.UTC().Truncate(time.Second), Seconds: time.Since(started).Round(100 * time.Millisecond).Seconds(),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Redis: b.results.redis,
		Systems: []string{}, Settings: map[string][]Setting{}, Figures: []*figureResult{},
	}
	for _, makeSystem := range b.systems {
		s := makeSystem()
		d.Systems = append(d.Systems, s.Name())
		d.Settings[s.Name()] = s.Settings()
	}
	for _, f := range figuresOf(b.plan) {
		if result := d.gather(b.results, f); len(result.Systems) > 0 {
			d.Figures = append(d.Figures, result)
		}
	}
	d.Process50VsAsynq = optional(b.results.ratio("process_50", "leaseq", "asynq"))
	d.Process50VsPop = optional(b.results.ratio("process_50", "leaseq", "pop"))
	d.ServerCPUPerJob = optional(b.results.median("leaseq", "process_50_server_cpu_us"))
	d.Enqueue50VsAsynq = optional(b.results.ratio("enqueue_50", "leaseq", "asynq"))
	if len(b.plan.memory) > 0 {
		d.MemoryOverhead = optional(b.results.median("leaseq", memoryFigure(b.plan.memory[0])))
	}
	d.IdleLatencyP50 = optional(b.results.median("leaseq", "latency_p50"))
	d.IdleCommandsASeconds = optional(b.results.median("leaseq", "idle_commands"))
	return d
}

func (d *document) gather(r *results, f figure) *figureResult {
	result := &figureResult{
		Key: f.Key, Title: f.Title, Unit: f.Unit, place: f.Place, hide: f.Hide,
		Systems: map[string]*measured{}, Ratios: map[string]float64{},
	}
	for _, name := range d.Systems {
		if values := r.get(name, f.Key); len(values) > 0 {
			result.Systems[name] = &measured{Median: median(values), Values: values}
		}
	}
	for _, name := range d.others() {
		if value, ok := r.ratio(f.Key, d.Systems[0], name); ok {
			result.Ratios[name] = value
		}
	}
	return result
}

func optional(value float64, ok bool) *float64 {
	if !ok {
		return nil
	}
	return &value
}

// encode writes the document, a line for each headline and each figure.
func (d *document) encode() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		return nil, err
	}
	return breakLines(bytes.TrimSpace(text.Bytes())), nil
}

// breakLines begins a new line for each member of an object, and for each of the objects in its members.
func breakLines(text []byte) []byte {
	var out []byte
	depth, quoted := 0, false
	for i, c := range text {
		if c == '"' && (i == 0 || text[i-1] != '\\') { // no text of ours ends with a backslash
			quoted = !quoted
		}
		if quoted {
			out = append(out, c)
			continue
		}
		switch c {
		case '{', '[':
			depth++
			out = append(out, c)
			if depth == 1 || depth == 2 && text[i+1] == '{' {
				out = append(out, '\n')
			}
		case '}', ']':
			depth--
			if depth == 0 {
				out = append(out, '\n')
			}
			out = append(out, c)
		case ',':
			out = append(out, c)
			if depth == 1 || depth == 2 && text[i+1] == '{' {
				out = append(out, '\n')
			}
		default:
			out = append(out, c)
		}
	}
	return out
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A document is everything that was measured.
type document struct {
	Command  string    `json:"command"`
	Quick    bool      `json:"quick"`
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"`
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
	CPU      string    `json:"cpu"`
	CPUs     int       `json:"cpus"`
	Redis    string    `json:"redis"`

	Due        []cost     `json:"due"`        // by the number of jobs in due
	Processing []cost     `json:"processing"` // by the number of jobs in processing
	Loads      []load     `json:"loads"`      // how due was filled
	Held       []held     `json:"held"`       // what jobs in processing need
	Jobs       []jobSize  `json:"jobs"`       // by sizes of payload and ID
	Producers  []spending `json:"producers"`
	Consumers  []spending `json:"consumers"`
}

// held is what a job in processing needs in memory.
type held struct {
	Size  int     `json:"size"`
	Bytes float64 `json:"bytes_beside_payload"`
}

func newDocument(quick bool, started time.Time) *document {
	d := &document{
		Command: "make bench-scale", Quick: quick, Started: started.UTC().Truncate(time.Second),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), CPU: processor(),
	}
	if quick {
		d.Command = "go -C bench run ./scale -quick"
	}
	return d
}

// processor is the name that Linux gives the first processor; "" where it gives none.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	return processorIn(string(text))
}

func processorIn(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// machine says where it was measured.
func (d *document) machine() string {
	cpu := d.CPU
	if cpu == "" {
		cpu = d.Platform
	}
	return fmt.Sprintf("%d CPUs (%s) shared by client and server, redis-server %s on loopback without persistence, %s, %s", d.CPUs, cpu, d.Redis, d.Go, d.Started.Format("January 2006"))
}

// write writes what the settings ask for.
func write(s settings, d *document, out io.Writer) error {
	encoded, err := encode(d)
	if err != nil {
		return err
	}
	text := d.markdown()
	if s.out != "" {
		if err := d.writeTo(s.out, encoded, text); err != nil {
			return err
		}
	}
	if s.costs != "" {
		costs, err := encode(newCosts(d))
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.costs, costs, 0o644); err != nil {
			return err
		}
	}
	if s.json {
		text = string(encoded)
	}
	_, err = io.WriteString(out, text)
	return err
}

// writeTo fills a folder, which is made if it is missing.
func (d *document) writeTo(folder string, encoded []byte, text string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	errs := []error{
		os.WriteFile(filepath.Join(folder, "scale.json"), encoded, 0o644),
		os.WriteFile(filepath.Join(folder, "scale.md"), []byte(text), 0o644),
	}
	for _, p := range pictures {
		drawn, err := p.draw(d)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, p.file), drawn, 0o644)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// read reads what an earlier run has written; nothing where no file is named.
func read(file string) (*document, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := new(document)
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return d, nil
}

func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(v)
	return text.Bytes(), err
}

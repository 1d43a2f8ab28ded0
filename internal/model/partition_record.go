package model

import (
	"maps"
	"strconv"
)

// An Attached is an idempotency record that rides on a lease.
type Attached struct {
	Name, Owner string
	Own         bool // it is the job's: deleted with a cancelled one
	Set         map[string]string
	Expiry      string // extend: the field that gets the lease's expiry
}

// A Record is what one holds.
type Record struct {
	Fields map[string]string
	Follow string // the field that has the expiry of a lease which is not known exactly yet
	Of     string // the job of that lease
}

// Begin makes a record, as a guard does.
func (p *Partition) Begin(name string, fields map[string]string) {
	p.Records[name] = &Record{Fields: maps.Clone(fields)}
}

func (p *Partition) owned(a *Attached) bool {
	r := p.Records[a.Name]
	return r != nil && r.Fields["owner"] == a.Owner
}

func (p *Partition) change(a *Attached) {
	maps.Copy(p.Records[a.Name].Fields, a.Set)
}

// settleRecord does what a settle does to its record, and says whether it may go on.
func (p *Partition) settleRecord(v *Verdict, cancelled bool) bool {
	switch {
	case v.Attached == nil:
	case !p.owned(v.Attached):
		return v.Op != 'a'
	case v.Op != 'a' && cancelled && v.Attached.Own:
		delete(p.Records, v.Attached.Name)
	default:
		p.change(v.Attached)
	}
	return true
}

// follow has a record's field be the expiry of a job's lease; Learn tells what that is.
func (p *Partition) follow(a *Attached, id string) {
	if a == nil || !p.owned(a) {
		return
	}
	p.change(a)
	if a.Expiry != "" {
		r := p.Records[a.Name]
		r.Follow, r.Of = a.Expiry, id
	}
}

// Learn gives records that follow a lease its expiry, in ms, where score tells it. It is to be called after each extend.
func (p *Partition) Learn(score func(id string) (int64, bool)) {
	for _, r := range p.Records {
		if r.Follow == "" {
			continue
		}
		if at, ok := score(r.Of); ok {
			r.Fields[r.Follow] = strconv.FormatInt(at, 10)
		}
		r.Follow = ""
	}
}

// dropRecords deletes the records of the items that have this code: names are none, or one for each, "" for none.
func (p *Partition) dropRecords(codes string, code byte, names []string) {
	for i, name := range names {
		if codes[i] == code {
			delete(p.Records, name)
		}
	}
}

package chaos

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/leaseq/leaseq/internal/redisproc"
	"github.com/leaseq/leaseq/internal/servershim"
)

// fsync is how the server of a run syncs its append-only file, but for the faults that set something else.
const fsync = "everysec"

// A gear is what the run's own server has beside it, for the faults that need it.
type gear struct {
	shim   *servershim.Shim // nil: there is none
	noShim error            // why not
	disk   *smallDisk       // nil: the server works in a plain folder
	noDisk error            // why
	shift  time.Duration    // what the server's clock is off by
}

var errNotWanted = errors.New("none of the run's faults needs it")

// ownServer starts the redis-server of a run, with an append-only file that is synced every second, and with what its
// faults need. What cannot be had is named by those faults.
func (s *storm) ownServer(ctx context.Context) (*redisproc.Server, error) {
	o := &redisproc.Options{Dir: filepath.Join(s.dir, "server"), AppendOnly: true, AppendFsync: fsync}
	s.gear.noShim, s.gear.noDisk = errNotWanted, errNotWanted
	if s.wants("redis-kill-everysec", "power-cut-always", "power-cut-everysec", "clock-jump") {
		if s.gear.shim, s.gear.noShim = servershim.Build(""); s.gear.noShim == nil {
			o.Env = s.gear.shim.Env()
		}
	}
	if s.wants("disk-full") {
		s.gear.disk, s.gear.noDisk = mountDisk(o.Dir)
	}
	own, err := redisproc.Start(ctx, o)
	if err != nil || s.gear.shim == nil {
		return own, err
	}
	if state, err := s.gear.shim.State(); err != nil || state.Loads == 0 {
		s.gear.noShim = errors.Join(errors.New("this redis-server does not take the library that stands for its clock and its disk"), err)
	}
	return own, nil
}

// wants reports whether the run has one of these faults.
func (s *storm) wants(names ...string) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return slices.Contains(names, f.Name) })
}

// close ends what is left when the server has ended. It is there too where the server was never started.
func (g *gear) close() error {
	var errs []error
	if g.shim != nil {
		errs = append(errs, g.shim.Close())
	}
	if g.disk != nil {
		errs = append(errs, g.disk.close())
	}
	return errors.Join(errs...)
}

func needDisk(s *Site) error {
	if err := needOwnServer(s); err != nil {
		return err
	}
	return s.storm.gear.noDisk
}

func needShim(s *Site) error {
	if err := needOwnServer(s); err != nil {
		return err
	}
	return s.storm.gear.noShim
}

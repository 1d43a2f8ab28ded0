package chaos

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A smallDisk is a file system in memory for the server's files, whose size can be what is in use just now: full. It is
// there for as long as its keeper is not ended, a shell that notices the end of this process, however that comes.
type smallDisk struct {
	dir    string
	hold   io.Closer
	keeper *exec.Cmd
}

// roomy is a size by which the disk is not full: it takes no more memory than its files.
const roomy = "size=50%"

// mountDisk mounts one at dir, which it makes.
func mountDisk(dir string) (*smallDisk, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root, to mount a small disk")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d := &smallDisk{dir: dir, keeper: exec.Command("sh", "-c", `cat >/dev/null; umount -l "$0" 2>/dev/null`, dir)}
	d.keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	hold, err := d.keeper.StdinPipe()
	if err == nil {
		err = d.keeper.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("who is to unmount a small disk cannot be started: %w", err)
	}
	d.hold = hold
	if err := syscall.Mount("leaseq-chaos", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, roomy); err != nil {
		d.dismiss()
		return nil, fmt.Errorf("a small disk cannot be mounted: %w", err)
	}
	return d, nil
}

// fill makes the disk as small as what it holds.
func (d *smallDisk) fill() error {
	var err error
	for range 100 { // what is written meanwhile makes it fail
		var now syscall.Statfs_t
		if err = syscall.Statfs(d.dir, &now); err != nil {
			return err
		}
		if err = d.resize(fmt.Sprintf("size=%d", (int64(now.Blocks)-int64(now.Bfree))*now.Bsize)); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

// empty makes room again.
func (d *smallDisk) empty() error { return d.resize(roomy) }

func (d *smallDisk) resize(size string) error {
	if err := syscall.Mount("leaseq-chaos", d.dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, size); err != nil {
		return fmt.Errorf("the disk cannot be resized: %w", err)
	}
	return nil
}

// close unmounts the disk, also one that is in use.
func (d *smallDisk) close() error {
	err := syscall.Unmount(d.dir, syscall.MNT_DETACH)
	d.dismiss()
	if err != nil {
		return fmt.Errorf("the small disk at %s is left: %w", d.dir, err)
	}
	return nil
}

// dismiss ends the keeper.
func (d *smallDisk) dismiss() {
	_ = d.hold.Close()
	_ = d.keeper.Wait()
}

package netfault

import (
	"syscall"
	"unsafe"
)

// siocOutqNSD asks how much of a socket's data has not been sent yet (linux/sockios.h).
const siocOutqNSD = 0x894B

// unsent returns how many bytes of a socket wait to be sent, and 0 where that cannot be told. What has been sent
// arrives before a reset that follows.
func unsent(fd uintptr) int {
	var n int32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, siocOutqNSD, uintptr(unsafe.Pointer(&n))); errno != 0 {
		return 0
	}
	return int(n)
}

package netfault

import "syscall"

// soNWrite asks how much data a socket's send buffer holds (sys/socket.h).
const soNWrite = 0x1024

// unsent returns how many bytes of a socket wait to be sent or acknowledged, and 0 where that cannot be told.
func unsent(fd uintptr) int {
	n, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, soNWrite)
	if err != nil {
		return 0
	}
	return n
}

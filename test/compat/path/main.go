// Command path makes two TUN devices, one for each end of a path, and carries packets between them as a long, thin or lossy path does. Each
// line of its input is JSON: what either direction is like from now on. It ends with its input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Direction is one way of a path. A field that is 0 is no limit, and no fault.
type Direction struct {
	DelayMs        float64
	JitterMs       float64
	Loss           float64
	BytesPerSecond float64
	// QueueBytes may wait for the rate. More are dropped.
	QueueBytes float64
	// MTU is the longest packet in bytes. Longer ones vanish, and nobody is told.
	MTU int
}

// Both is a line of the input.
type Both struct{ Up, Down Direction }

type packet struct {
	bytes []byte
	due   time.Time
}

const (
	longestPacket = 65536
	// More packets than any path here holds: 64 MB.
	held = 1 << 16
	// Linux: TUNSETIFF, IFF_TUN | IFF_NO_PI.
	setInterface = 0x400454ca
	tunWithoutInfo = 0x0001 | 0x1000
	// A busy machine must not make the path longer.
	urgent = -20
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(near, far string) error {
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, urgent)
	ends := [2]*os.File{}
	for i, name := range []string{near, far} {
		device, err := open(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		ends[i] = device
	}
	var up, down atomic.Pointer[Direction]
	up.Store(&Direction{})
	down.Store(&Direction{})
	go carry(ends[0], ends[1], &up)
	go carry(ends[1], ends[0], &down)
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var both Both
		if err := json.Unmarshal(lines.Bytes(), &both); err != nil {
			return err
		}
		up.Store(&both.Up)
		down.Store(&both.Down)
		fmt.Println("set")
	}
	return lines.Err()
}

func open(name string) (*os.File, error) {
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: tunWithoutInfo}
	copy(request.name[:15], name)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), setInterface, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return nil, errno
	}
	return os.NewFile(uintptr(fd), name), nil
}

// carry takes packets from one end, and lets go of them at the other in the same order, however long each takes.
func carry(from, to *os.File, now *atomic.Pointer[Direction]) {
	later := make(chan packet, held)
	go deliver(later, to)
	buffer := make([]byte, longestPacket)
	var free, last time.Time
	for {
		length, err := from.Read(buffer)
		if err != nil {
			continue // the device is down
		}
		direction := now.Load()
		arrived := time.Now()
		if direction.MTU > 0 && length > direction.MTU {
			continue
		}
		if free.Before(arrived) {
			free = arrived
		}
		if rate := direction.BytesPerSecond; rate > 0 {
			if queue := direction.QueueBytes; queue > 0 && free.Sub(arrived).Seconds()*rate+float64(length) > queue {
				continue
			}
			free = free.Add(time.Duration(float64(length) / rate * float64(time.Second)))
		}
		if rand.Float64() < direction.Loss {
			continue
		}
		due := free.Add(ms(direction.DelayMs + direction.JitterMs*rand.Float64()))
		if due.Before(last) {
			due = last
		}
		last = due
		select {
		case later <- packet{append([]byte(nil), buffer[:length]...), due}:
		default:
		}
	}
}

func deliver(packets <-chan packet, to *os.File) {
	for each := range packets {
		if wait := time.Until(each.due); wait > 0 {
			time.Sleep(wait)
		}
		_, _ = to.Write(each.bytes)
	}
}

func ms(value float64) time.Duration {
	return time.Duration(value * float64(time.Millisecond))
}

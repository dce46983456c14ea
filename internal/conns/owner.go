package conns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// errNoSocket says that this host has no such socket.
var errNoSocket = errors.New("this host has no such connection")

// OwnerOf returns the UID of the process that has made a connection on this host. local and remote are the two ends as the
// server sees them.
func OwnerOf(local, remote net.Addr) (string, error) {
	s, err := socketOf(local, remote)
	return s.uid, err
}

// isOwn reports whether this process itself has made a connection on this host: the connection's other end is among its files.
func isOwn(c net.Conn) bool {
	s, err := socketOf(c.LocalAddr(), c.RemoteAddr())
	if err != nil || s.uid != strconv.Itoa(os.Geteuid()) {
		return false
	}
	files, err := os.ReadDir(ownFiles)
	return err == nil && slices.ContainsFunc(files, func(f os.DirEntry) bool {
		to, err := os.Readlink(filepath.Join(ownFiles, f.Name()))
		return err == nil && to == "socket:["+s.inode+"]"
	})
}

// ownFiles lists what this process has open: proc_pid_fd(5).
const ownFiles = "/proc/self/fd"

// socket is one end of a connection as the kernel knows it.
type socket struct{ uid, inode string }

// socketOf returns the client's end of a connection on this host. It asks the kernel for this one socket. If the kernel does not
// allow that, it reads the list of all sockets, which takes some milliseconds.
func socketOf(local, remote net.Addr) (socket, error) {
	to, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return socket{}, fmt.Errorf("the server's end: %w", err)
	}
	from, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return socket{}, fmt.Errorf("the client's end: %w", err)
	}
	found, err := diagnosed(from, to)
	if err == nil || errors.Is(err, errNoSocket) {
		return found, err
	}
	return listed(from, to)
}

// The kernel's sock_diag(7), in its own sizes and numbers.
const (
	diagByFamily = 20
	diagRequest  = 56 // struct inet_diag_req_v2
	diagAnswer   = 72 // struct inet_diag_msg
	diagUID      = 64 // where the user is in it
	diagInode    = 68 // where the socket's inode is
	stateListen  = 10
)

// diagnosed asks the kernel for the socket from one address to another.
func diagnosed(from, to netip.AddrPort) (socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return socket{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	family := byte(unix.AF_INET6)
	source, target := from.Addr().As16(), to.Addr().As16()
	sourceBytes, targetBytes := source[:], target[:]
	if from.Addr().Unmap().Is4() { // also if the server's socket is of IPv6: this is the client's
		family = unix.AF_INET
		sourceBytes, targetBytes = source[12:], target[12:]
	}
	request := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+diagRequest)
	binary.NativeEndian.PutUint32(request[0:], unix.SizeofNlMsghdr+diagRequest)
	binary.NativeEndian.PutUint16(request[4:], diagByFamily)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	request = append(request, family, unix.IPPROTO_TCP, 0, 0)
	request = append(request, 0xff, 0xff, 0xff, 0xff) // in any state
	request = binary.BigEndian.AppendUint16(request, from.Port())
	request = binary.BigEndian.AppendUint16(request, to.Port())
	request = append(request, sourceBytes...)
	request = append(request, make([]byte, 16-len(sourceBytes))...)
	request = append(request, targetBytes...)
	request = append(request, make([]byte, 16-len(targetBytes))...)
	request = append(request, 0, 0, 0, 0)                                     // on any interface
	request = append(request, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff) // no cookie
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return socket{}, err
	}
	answer := make([]byte, 4<<10)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return socket{}, err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return socket{}, io.ErrUnexpectedEOF
	}
	kind, body := binary.NativeEndian.Uint16(answer[4:]), answer[unix.SizeofNlMsghdr:n]
	if kind == unix.NLMSG_ERROR {
		code := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		if code == unix.ENOENT {
			return socket{}, errNoSocket
		}
		return socket{}, code
	}
	if kind != diagByFamily || len(body) < diagAnswer {
		return socket{}, fmt.Errorf("sock_diag: an answer of type %d with %d bytes", kind, len(body))
	}
	if body[1] == stateListen {
		return socket{}, errNoSocket // one that would take a connection to there
	}
	number := func(at int) string { return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(body[at:])), 10) }
	return socket{uid: number(diagUID), inode: number(diagInode)}, nil
}

// maxSockets bounds what is read of the kernel's list of sockets, of some 150 bytes each.
const maxSockets = 4 << 20

// listed reads the socket in the kernel's list.
func listed(from, to netip.AddrPort) (socket, error) {
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue // without IPv6 there is one list
		}
		content, err := io.ReadAll(io.LimitReader(f, maxSockets))
		_ = f.Close()
		if err != nil {
			return socket{}, err
		}
		if s, found := socketIn(content, from, to); found {
			return s, nil
		}
	}
	return socket{}, errNoSocket
}

// socketIn returns the socket at one end of a connection in the kernel's list (proc_pid_net(5)).
func socketIn(content []byte, from, to netip.AddrPort) (s socket, found bool) {
	for line := range bytes.Lines(content) {
		fields := strings.Fields(string(line))
		if len(fields) > 9 && isEnd(fields[1], from) && isEnd(fields[2], to) {
			return socket{uid: fields[7], inode: fields[9]}, true
		}
	}
	return socket{}, false
}

// isEnd reports whether an end of a socket in the kernel's list is this one. An IPv4 connection may be on the list for IPv6.
func isEnd(field string, end netip.AddrPort) bool {
	ip, port, ok := strings.Cut(field, ":")
	if !ok || port != fmt.Sprintf("%04X", end.Port()) {
		return false
	}
	if address := end.Addr().Unmap(); address.Is4() {
		four := address.As4()
		if ip == words(four[:]) {
			return true
		}
	}
	six := end.Addr().As16()
	return ip == words(six[:])
}

// words writes an address as the kernel does: words of the machine's own byte order.
func words(address []byte) string {
	var text strings.Builder
	for i := 0; i < len(address); i += 4 {
		fmt.Fprintf(&text, "%08X", binary.NativeEndian.Uint32(address[i:]))
	}
	return text.String()
}

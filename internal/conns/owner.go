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
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// errNoSocket says that this host has no such socket.
var errNoSocket = errors.New("this host has no such connection")

// OwnerOf returns the UID of the process that has made a connection on this host. local and remote are the two ends as the
// server sees them. It asks the kernel for this one socket. If the kernel does not allow that, it reads the list of all
// sockets, which takes some milliseconds.
func OwnerOf(local, remote net.Addr) (string, error) {
	to, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return "", fmt.Errorf("the server's end: %w", err)
	}
	from, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return "", fmt.Errorf("the client's end: %w", err)
	}
	owner, err := diagnosed(from, to)
	if err == nil || errors.Is(err, errNoSocket) {
		return owner, err
	}
	return listed(from, to)
}

// The kernel's sock_diag(7), in its own sizes and numbers.
const (
	diagByFamily = 20
	diagRequest  = 56 // struct inet_diag_req_v2
	diagAnswer   = 72 // struct inet_diag_msg
	diagUID      = 64 // where the user is in it
	stateListen  = 10
)

// diagnosed asks the kernel who has the socket from one address to another.
func diagnosed(from, to netip.AddrPort) (string, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return "", err
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
		return "", err
	}
	answer := make([]byte, 4<<10)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return "", err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return "", io.ErrUnexpectedEOF
	}
	kind, body := binary.NativeEndian.Uint16(answer[4:]), answer[unix.SizeofNlMsghdr:n]
	if kind == unix.NLMSG_ERROR {
		code := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		if code == unix.ENOENT {
			return "", errNoSocket
		}
		return "", code
	}
	if kind != diagByFamily || len(body) < diagAnswer {
		return "", fmt.Errorf("sock_diag: an answer of type %d with %d bytes", kind, len(body))
	}
	if body[1] == stateListen {
		return "", errNoSocket // one that would take a connection to there
	}
	return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(body[diagUID:])), 10), nil
}

// maxSockets bounds what is read of the kernel's list of sockets, of some 150 bytes each.
const maxSockets = 4 << 20

// listed reads who has the socket in the kernel's list.
func listed(from, to netip.AddrPort) (string, error) {
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue // without IPv6 there is one list
		}
		content, err := io.ReadAll(io.LimitReader(f, maxSockets))
		_ = f.Close()
		if err != nil {
			return "", err
		}
		if owner, found := ownerIn(content, from, to); found {
			return owner, nil
		}
	}
	return "", errNoSocket
}

// ownerIn returns the user of the socket at one end of a connection in the kernel's list (proc_pid_net(5)).
func ownerIn(content []byte, from, to netip.AddrPort) (owner string, found bool) {
	for line := range bytes.Lines(content) {
		fields := strings.Fields(string(line))
		if len(fields) > 7 && isEnd(fields[1], from) && isEnd(fields[2], to) {
			return fields[7], true
		}
	}
	return "", false
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

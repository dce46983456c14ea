package conns

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	return s.UID, err
}

// OfRequest returns the UID of the process that has made a request on this host.
func OfRequest(r *http.Request) (string, error) {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if !ok || err != nil {
		return "", errNoSocket
	}
	return OwnerOf(local, net.TCPAddrFromAddrPort(from))
}

// isOwn reports whether this process itself has made a connection on this host: the connection's other end is among its files.
func isOwn(c net.Conn) bool {
	s, err := socketOf(c.LocalAddr(), c.RemoteAddr())
	if err != nil || s.UID != strconv.Itoa(os.Geteuid()) {
		return false
	}
	files, err := os.ReadDir(ownFiles)
	return err == nil && slices.ContainsFunc(files, func(f os.DirEntry) bool {
		to, err := os.Readlink(filepath.Join(ownFiles, f.Name()))
		return err == nil && to == fmt.Sprintf("socket:[%d]", s.Inode)
	})
}

// ownFiles lists what this process has open: proc_pid_fd(5).
const ownFiles = "/proc/self/fd"

// Socket is a TCP socket of this host.
type Socket struct {
	Local, Remote netip.AddrPort
	// Open says that its connection is established, or asked for.
	Open  bool
	UID   string
	Inode uint64
}

// socketOf returns the client's end of a connection on this host. It asks the kernel for this one socket. If the kernel does not
// allow that, socketOf reads the list of all sockets, which takes some milliseconds.
func socketOf(local, remote net.Addr) (Socket, error) {
	to, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return Socket{}, fmt.Errorf("the server's end: %w", err)
	}
	from, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return Socket{}, fmt.Errorf("the client's end: %w", err)
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
func diagnosed(from, to netip.AddrPort) (Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return Socket{}, err
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
		return Socket{}, err
	}
	answer := make([]byte, 4<<10)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return Socket{}, err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return Socket{}, io.ErrUnexpectedEOF
	}
	kind, body := binary.NativeEndian.Uint16(answer[4:]), answer[unix.SizeofNlMsghdr:n]
	if kind == unix.NLMSG_ERROR {
		code := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		if code == unix.ENOENT {
			return Socket{}, errNoSocket
		}
		return Socket{}, code
	}
	if kind != diagByFamily || len(body) < diagAnswer {
		return Socket{}, fmt.Errorf("sock_diag: an answer of type %d with %d bytes", kind, len(body))
	}
	if body[1] == stateListen {
		return Socket{}, errNoSocket // one that would take a connection to there
	}
	number := func(at int) uint64 { return uint64(binary.NativeEndian.Uint32(body[at:])) }
	return Socket{UID: strconv.FormatUint(number(diagUID), 10), Inode: number(diagInode)}, nil
}

// maxSockets bounds what is read of the kernel's list of sockets, of some 150 bytes each.
const maxSockets = 4 << 20

// listed reads the socket in the kernel's list.
func listed(from, to netip.AddrPort) (Socket, error) {
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue // without IPv6 there is one list
		}
		content, err := io.ReadAll(io.LimitReader(f, maxSockets))
		_ = f.Close()
		if err != nil {
			return Socket{}, err
		}
		if s, found := socketIn(content, from, to); found {
			return s, nil
		}
	}
	return Socket{}, errNoSocket
}

// socketIn returns the socket at one end of a connection in the kernel's list.
func socketIn(table []byte, from, to netip.AddrPort) (s Socket, found bool) {
	from, to = plain(from), plain(to)
	all := Sockets(table)
	i := slices.IndexFunc(all, func(s Socket) bool { return s.Local == from && s.Remote == to })
	if i < 0 {
		return Socket{}, false
	}
	return all[i], true
}

// plain returns an end of a connection as Sockets has it.
func plain(end netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(end.Addr().Unmap().WithZone(""), end.Port())
}

// Sockets reads the kernel's list of TCP sockets (proc_pid_net(5)).
func Sockets(table []byte) (all []Socket) {
	const established, asking = "01", "02"
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 10 {
			continue
		}
		local, okLocal := end(fields[1])
		remote, okRemote := end(fields[2])
		inode, err := strconv.ParseUint(fields[9], 10, 64)
		if okLocal && okRemote && err == nil {
			all = append(all, Socket{local, remote, fields[3] == established || fields[3] == asking, fields[7], inode})
		}
	}
	return all
}

// end parses one end of a socket from the kernel's list, ADDRESS:PORT in hexadecimal. The address is in 32-bit words of the
// machine's byte order. The list for IPv6 shows some IPv4 connections by IPv4-mapped addresses; end returns these as IPv4.
func end(field string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(field, ":")
	number, err := strconv.ParseUint(port, 16, 16)
	address, errHex := hex.DecodeString(host)
	if err != nil || errHex != nil || len(address)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(address); i += 4 {
		binary.NativeEndian.PutUint32(address[i:], binary.BigEndian.Uint32(address[i:]))
	}
	ip, ok := netip.AddrFromSlice(address)
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)), ok
}

// SPDX-License-Identifier: GPL-2.0-or-later
// The kernel keeps more of the job's sockets than CRIU carries: as records beside the image go
// options that are not as in a new socket of the kind, and the multicast groups that a socket is in
// (souk_option). A CRIU that restores sets them (checkpoint/criu_descriptors.c). Also which
// descriptors are of an inotify, since notices are lost there (checkpoint/criu_inotify.c).
//
// The job is frozen, and its sockets are asked through descriptors that the kernel makes of its own
// (pidfd_getfd): nothing of them changes.
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "agentd/init/records.hpp"
#include "kernel/sys/process/socket_options.h"

namespace souk::init {
namespace {

// The kernel does not say which groups a socket is in; it answers whether it is in that one. All
// that it can be in are those that the network's devices are in.
struct Group {
    uint32_t device;
    int family;
    unsigned char address[16];
};
constexpr int groups_max = 4096;
Group groups[groups_max];

int read_groups(const char* path, int family, int count) {
    FILE* const file = fopen(path, "re");
    char line[256], digits[33];
    uint32_t device = 0, address;
    while (file && count < groups_max && fgets(line, sizeof line, file)) {
        Group& g = groups[count];
        g = {};
        g.family = family;
        if (family == AF_INET) {  // a line for the device, then one for each group
            if (line[0] != '\t') (void)sscanf(line, "%u", &device);
            if (line[0] != '\t' || sscanf(line, " %x", &address) != 1) continue;
            memcpy(g.address, &address, sizeof address);
        } else {
            if (sscanf(line, "%u %*s %32[0-9a-f]", &device, digits) != 2) continue;
            for (int i = 0; i < 16; ++i) (void)sscanf(digits + 2 * i, "%2hhx", &g.address[i]);
        }
        g.device = device;
        ++count;
    }
    if (file) fclose(file);
    return count;
}

// A new socket of a kind has the same value for each that it is compared with: it is asked once.
struct Usual {
    enum { unknown, none, here, longer } state;
    socklen_t length;
    char bytes[24];
};
constexpr size_t rows = sizeof souk_socket_options / sizeof *souk_socket_options;
Usual usual_of[sizeof Descriptors::kinds / sizeof *Descriptors::kinds][rows];

bool is_usual(Usual& usual, int fresh, const souk_option_row& row, const souk_option_value& value,
              socklen_t n) {
    static souk_option_value asked;
    if (usual.state == Usual::unknown || usual.state == Usual::longer) {
        usual.length = sizeof asked;
        const bool has = getsockopt(fresh, row.level, row.name, &asked, &usual.length) == 0;
        usual.state = !has                                 ? Usual::none
                      : usual.length <= sizeof usual.bytes ? Usual::here
                                                           : Usual::longer;
        if (usual.state == Usual::here) memcpy(usual.bytes, asked.bytes, usual.length);
    }
    const char* const bytes = usual.state == Usual::here ? usual.bytes : asked.bytes;
    return usual.state != Usual::none && n == usual.length && memcmp(&value, bytes, n) == 0;
}

struct Socket {
    int pid, fd, copy;
    const Descriptors::Kind& kind;
    Usual* usual;  // of its kind, by the row
    Records* out;

    bool add(uint32_t level, uint32_t name, const souk_option_value& value, size_t length) const {
        const souk_option head = {pid,
                                  fd,
                                  static_cast<uint16_t>(level),
                                  static_cast<uint16_t>(name),
                                  static_cast<uint16_t>(length),
                                  0};
        return out->add(&head, sizeof head) && out->add(value.bytes, length);
    }

    bool has(uint32_t level) const {
        const bool inet = kind.family == AF_INET || kind.family == AF_INET6;
        switch (level) {
            case souk_ip: return inet;
            case souk_ipv6: return kind.family == AF_INET6;
            case souk_tcp: return inet && kind.type == SOCK_STREAM;
            case souk_udp: return inet && kind.type == SOCK_DGRAM;
            case souk_udplite: return inet && kind.protocol == IPPROTO_UDPLITE;
            case souk_packet: return kind.family == AF_PACKET;
            case souk_netlink: return kind.family == AF_NETLINK;
            default: return true;
        }
    }

    bool save_option(const souk_option_row& row) const {
        static souk_option_value value;
        socklen_t n = sizeof value;
        if (!has(row.level) || getsockopt(copy, row.level, row.name, &value, &n) != 0) return true;
        const bool as_new = is_usual(usual[&row - souk_socket_options], kind.fresh, row, value, n);
        if (as_new && !((row.how & souk_changed) != 0 && has(souk_tcp))) return true;
        if ((row.how & (souk_device | souk_be_device)) == 0)
            return add(row.level, row.name, value, n);
        const uint32_t device = row.how & souk_device ? value.number : ntohl(value.number);
        memset(value.bytes, 0, souk_device_name);
        if (!if_indextoname(device, value.bytes)) return true;
        return add(row.level, row.name, value, souk_device_name);
    }

    bool save_group(const Group& g) const {
        static souk_option_value value;
        const int level = g.family == AF_INET ? souk_ip : souk_ipv6;
        constexpr size_t room = sizeof value - souk_device_name;
        struct group_filter& filter = value.group.filter;
        memset(&value, 0, sizeof value.group);
        filter.gf_interface = g.device;
        filter.gf_group.ss_family = static_cast<sa_family_t>(g.family);
        auto* const v4 = reinterpret_cast<sockaddr_in*>(&filter.gf_group);
        auto* const v6 = reinterpret_cast<sockaddr_in6*>(&filter.gf_group);
        if (g.family == AF_INET)
            memcpy(&v4->sin_addr, g.address, sizeof v4->sin_addr);
        else
            memcpy(&v6->sin6_addr, g.address, sizeof v6->sin6_addr);
        filter.gf_numsrc = room / sizeof(struct sockaddr_storage) - 2;
        socklen_t n = room;
        if (getsockopt(copy, level, souk_in_group, &filter, &n) != 0) return true;
        if (!if_indextoname(g.device, value.group.device)) return true;
        return add(static_cast<uint32_t>(level), souk_in_group, value, souk_device_name + n);
    }
};

int number_of(int socket, int name) {
    int value = -1;
    socklen_t n = sizeof value;
    return getsockopt(socket, SOL_SOCKET, name, &value, &n) == 0 ? value : -1;
}

const Descriptors::Kind& kind_of(Descriptors* all, int socket) {
    const Descriptors::Kind kind = {number_of(socket, SO_DOMAIN), number_of(socket, SO_TYPE),
                                    number_of(socket, SO_PROTOCOL), -1};
    for (int i = 0; i < all->kind_count; ++i) {
        const Descriptors::Kind& known = all->kinds[i];
        if (known.family == kind.family && known.type == kind.type &&
            known.protocol == kind.protocol)
            return known;
    }
    // A job seldom has sockets of so many kinds.
    constexpr int last = sizeof all->kinds / sizeof *all->kinds - 1;
    Descriptors::Kind& added = all->kinds[all->kind_count < last ? all->kind_count++ : last];
    if (added.family != 0) close(added.fresh);
    added = kind;
    memset(usual_of[&added - all->kinds], 0, sizeof *usual_of);
    added.fresh = ::socket(kind.family, kind.type | SOCK_CLOEXEC, kind.protocol);
    return added;
}

bool save_socket(Descriptors* all, int pid, int fd, int copy) {
    const Descriptors::Kind& kind = kind_of(all, copy);
    const Socket s = {pid, fd, copy, kind, usual_of[&kind - all->kinds], &all->options};
    for (const souk_option_row& row : souk_socket_options)
        if (!s.save_option(row)) return false;
    if (!s.has(souk_ip) || s.has(souk_tcp)) return true;
    if (all->groups < 0)
        all->groups =
            read_groups("/proc/net/igmp6", AF_INET6, read_groups("/proc/net/igmp", AF_INET, 0));
    for (int i = 0; i < all->groups; ++i)
        if ((groups[i].family == AF_INET || s.kind.family == AF_INET6) && !s.save_group(groups[i]))
            return false;
    return true;
}

// Later notices are seen by what has changed since.
bool save_inotify(Records* out, int pid, int fd, int copy) {
    struct timespec now;
    int waiting = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    (void)ioctl(copy, FIONREAD, &waiting);
    const souk_notified one = {pid, fd, now.tv_sec, now.tv_nsec, waiting > 0, 0};
    return out->add(&one, sizeof one);
}

// Remembers the numbers of descriptions, since several processes of the job may have one open. If
// two numbers share a place, the latter is taken for new, which costs time and nothing else.
unsigned long known[4096];

bool is_known(unsigned long inode) {
    unsigned long& place = known[inode % (sizeof known / sizeof *known)];
    const bool is = place == inode;
    place = inode;
    return is;
}

}  // namespace

Descriptors::Descriptors(int image_dir)
    : options{image_dir, SOUK_OPTIONS_NAME}, notified{image_dir, SOUK_NOTIFIED_NAME} {
    memset(known, 0, sizeof known);
}

Descriptors::~Descriptors() {
    for (int i = 0; i < kind_count; ++i) close(kinds[i].fresh);
}

bool Descriptors::save(int pid) {
    char directory[32], name[48], target[64];
    unsigned long inode;
    int process = -1;
    snprintf(directory, sizeof directory, "/proc/%d/fd", pid);
    const bool good = each_number(directory, [&](int fd) {
        snprintf(name, sizeof name, "%s/%d", directory, fd);
        const ssize_t n = readlink(name, target, sizeof target - 1);
        target[n < 0 ? 0 : n] = 0;
        const bool watches = strcmp(target, "anon_inode:inotify") == 0;
        if (!watches && (sscanf(target, "socket:[%lu]", &inode) != 1 || is_known(inode)))
            return true;
        if (process < 0) process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
        const int copy = static_cast<int>(syscall(SYS_pidfd_getfd, process, fd, 0));
        if (copy < 0) {
            say("look at an open file of the job", errno);
            return true;
        }
        const bool saved =
            watches ? save_inotify(&notified, pid, fd, copy) : save_socket(this, pid, fd, copy);
        close(copy);
        return saved;
    });
    if (process >= 0) close(process);
    return good;
}

}  // namespace souk::init

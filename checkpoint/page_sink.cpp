// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/page_sink.hpp"

#include <linux/userfaultfd.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernel/sys/host/probe.hpp"
#include "kernel/sys/net/descriptors.hpp"

namespace souk {
namespace {
constexpr int32_t restore_finished = 0x52535446;
constexpr uint64_t prefetch_bytes = 16 * page_bytes;

Status watch(int epoll, int fd) {
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.fd = fd;
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) != 0) return fail_errno("epoll", errno);
    return {};
}
}  // namespace

Status make_pages_possible() {
    if (const Need faults = examine_userfaultfd(); !faults.met)
        return fail(faults.name + ": " + faults.found);
    if (examine_pipe_size().met) return {};
    return write_file(AT_FDCWD, pipe_size_path, std::to_string(pipe_bytes_needed));
}

Result<PageSink> PageSink::open(int image_directory, const std::vector<PageRange>& ranges) {
    PageSink s;
    for (const PageRange& r : ranges)
        s.missing_[r.pid].add(r.start, r.start + r.pages * page_bytes);
    s.epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
    if (!s.epoll_) return fail_errno("epoll", errno);
    s.listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!s.listener_) return fail_errno("socket for CRIU's page faults", errno);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path =
        "/proc/self/fd/" + std::to_string(image_directory) + "/" + lazy_socket_name;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    if (::bind(s.listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
            0 ||
        ::listen(s.listener_.get(), 1) != 0)
        return fail_errno("listen for CRIU's page faults", errno);
    TRY(watch(s.epoll_.get(), s.listener_.get()));
    return s;
}

Result<std::vector<PageRange>> PageSink::on_readable() {
    std::vector<PageRange> wishes = std::exchange(wishes_, {});
    epoll_event ready[32];
    const int n = ::epoll_wait(epoll_.get(), ready, 32, 0);
    if (n < 0 && errno != EINTR) return fail_errno("epoll", errno);
    for (int i = 0; i < n; ++i) {
        const int fd = ready[i].data.fd;
        if (fd == listener_.get()) {
            TRY(accept_one());
        } else if (fd == socket_.get()) {
            TRY(on_socket());
        } else if (const auto it = spaces_.find(fd); it != spaces_.end()) {
            TRY(events(it->second, wishes));
        }
    }
    close_if_whole();
    return wishes;
}

Status PageSink::accept_one() {
    socket_ = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket_) return errno == EAGAIN ? Status{} : fail_errno("take CRIU's page faults", errno);
    listener_.reset();
    return watch(epoll_.get(), socket_.get());
}

// Pairs of a pid and its userfaultfd; a negative pid is a zombie's, without one; at last the word
// that all is restored.
Status PageSink::on_socket() {
    for (;;) {
        int32_t word = 0;
        TRY_ASSIGN(auto received,
                   receive_descriptors(socket_.get(), {reinterpret_cast<char*>(&word),
                                                       next_pid_ > 0 ? size_t{1} : sizeof word}));
        if (!received) return {};
        const size_t n = received->bytes;
        if (n == 0) {  // CRIU is done, or gone: its session tells
            socket_.reset();
            return {};
        }
        Fd uffd;
        if (!received->descriptors.empty()) uffd = std::move(received->descriptors[0]);
        if (next_pid_ > 0) {
            const auto image = missing_.find(next_pid_);
            if (!uffd)
                return fail("CRIU gave no userfaultfd of process " + std::to_string(next_pid_));
            MissingPages missing;
            if (image != missing_.end()) {
                missing = std::move(image->second);
                missing_.erase(image);
            }
            TRY(add_space(std::move(uffd), std::exchange(next_pid_, 0), std::move(missing)));
            continue;
        }
        if (n != sizeof word || uffd) return fail("CRIU speaks of page faults as none expects");
        if (word > 0 && word != restore_finished) next_pid_ = word;
    }
}

Status PageSink::add_space(Fd uffd, pid_t pid, MissingPages missing) {
    const int number = uffd.get();
    TRY(watch(epoll_.get(), number));
    spaces_[number] = Space{std::move(uffd), pid, std::move(missing), {}};
    new_.push_back(number);
    return {};
}

Status PageSink::events(Space& space, std::vector<PageRange>& wishes) {
    uffd_msg messages[16];
    for (;;) {
        const ssize_t n = ::read(space.uffd.get(), messages, sizeof messages);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return {};
        if (n < 0) return fail_errno("read page faults", errno);
        if (n == 0) return {};
        for (size_t i = 0; i < static_cast<size_t>(n) / sizeof messages[0]; ++i)
            TRY(event(space, messages[i], wishes));
    }
}

Status PageSink::event(Space& space, const uffd_msg& m, std::vector<PageRange>& wishes) {
    switch (m.event) {
        case UFFD_EVENT_PAGEFAULT:
            return fault(space, m.arg.pagefault.address & ~(page_bytes - 1), wishes);
        case UFFD_EVENT_FORK:
            return add_space(Fd(static_cast<int>(m.arg.fork.ufd)), space.pid, space.missing);
        case UFFD_EVENT_REMAP:
            space.missing.move(m.arg.remap.from, m.arg.remap.to, m.arg.remap.len);
            return {};
        case UFFD_EVENT_REMOVE:
        case UFFD_EVENT_UNMAP: space.missing.drop(m.arg.remove.start, m.arg.remove.end); return {};
        default:
            return fail("an event of userfaultfd that is not known: " + std::to_string(m.event));
    }
}

// Missing: asked for. Else it is a page that no image has.
Status PageSink::fault(Space& space, uint64_t address, std::vector<PageRange>& wishes) {
    const MissingPages::Piece piece = space.missing.at(address);
    if (piece.start < piece.end) {
        if (!space.asked.insert(piece.image).second) return {};
        const uint64_t bytes = std::min(piece.end - piece.start, prefetch_bytes);
        wishes.push_back({space.pid, piece.image, bytes / page_bytes});
        return {};
    }
    uffdio_zeropage zero{};
    zero.range = {address, page_bytes};
    if (::ioctl(space.uffd.get(), UFFDIO_ZEROPAGE, &zero) == 0) return {};
    // it changed meanwhile: the thread asks again
    if (errno == EAGAIN || errno == ENOENT || errno == ESRCH) return {};
    uffdio_range wake{address, page_bytes};
    if (errno == EEXIST && ::ioctl(space.uffd.get(), UFFDIO_WAKE, &wake) == 0) return {};
    return fail_errno("give a page of zeros", errno);
}

Status PageSink::restored() {
    if (!missing_.empty())
        return fail("CRIU has not handed over process " + std::to_string(missing_.begin()->first));
    restored_ = true;
    close_if_whole();
    return {};
}

Status PageSink::put(const PageRange& range, std::string_view bytes) {
    bytes_put_ += bytes.size();
    std::vector<int> numbers;  // a fork may add a space while pages are put
    for (const auto& [number, space] : spaces_)
        if (space.pid == range.pid) numbers.push_back(number);
    for (size_t i = 0; i < numbers.size(); ++i) {
        const auto before = spaces_.size();
        const auto it = spaces_.find(numbers[i]);
        if (it == spaces_.end()) continue;
        TRY(put_in(it->second, range, bytes));
        if (spaces_.size() == before) continue;
        for (const auto& [number, space] : spaces_)
            if (space.pid == range.pid &&
                std::find(numbers.begin(), numbers.end(), number) == numbers.end())
                numbers.push_back(number);
    }
    close_if_whole();
    return {};
}

Status PageSink::put_in(Space& space, const PageRange& range, std::string_view bytes) {
    const uint64_t image_end = range.start + bytes.size();
    space.asked.erase(space.asked.lower_bound(range.start), space.asked.lower_bound(image_end));
    for (bool again = true; again;) {
        again = false;
        for (const MissingPages::Piece& piece : space.missing.of_image(range.start, image_end)) {
            TRY_ASSIGN(const Put result,
                       copy(space, piece, bytes.data() + (piece.image - range.start)));
            if (result == Put::gone) {  // the process has ended
                space.missing = {};
                return {};
            }
            if (result == Put::changed) {  // the kernel waits for its events to be read
                TRY(events(space, wishes_));
                again = true;
                break;
            }
        }
    }
    return {};
}

// Fills a piece and strikes it off. A page that is there already stays; where there is no mapping
// any more nothing is done.
Result<PageSink::Put> PageSink::copy(Space& space, MissingPages::Piece piece, const char* bytes) {
    uint64_t part = piece.end - piece.start;
    for (uint64_t at = piece.start; at < piece.end;) {
        uffdio_copy c{};
        c.dst = at;
        c.src = reinterpret_cast<uint64_t>(bytes + (at - piece.start));
        c.len = part = std::min(part, piece.end - at);
        const bool ok = ::ioctl(space.uffd.get(), UFFDIO_COPY, &c) == 0;
        const int code = ok ? 0 : errno;
        if (!ok && (code == ESRCH || code == ENOSPC)) return Put::gone;
        uint64_t done = c.copy > 0 ? static_cast<uint64_t>(c.copy) : 0;
        if (!ok && done == 0) {
            switch (code) {
                case EAGAIN: return Put::changed;
                case EEXIST:
                case ENOENT:
                    // The first page is there, or the range spans two mappings, or none: halves,
                    // down to one page.
                    if (part > page_bytes && code == ENOENT) {
                        part = std::max(part / 2 / page_bytes, uint64_t{1}) * page_bytes;
                        continue;
                    }
                    done = page_bytes;
                    if (uffdio_range wake{at, page_bytes}; code == EEXIST)
                        (void)::ioctl(space.uffd.get(), UFFDIO_WAKE, &wake);
                    break;
                default: return fail_errno("put a page in place", code);
            }
        }
        space.missing.drop(at, at + done);
        at += done;
        part = piece.end - at;
    }
    return Put::all;
}

// All at once: who misses nothing itself may still touch a page that no image has.
void PageSink::close_if_whole() {
    const auto has_all = [](const auto& entry) { return entry.second.missing.empty(); };
    if (!restored_ || !std::all_of(spaces_.begin(), spaces_.end(), has_all)) return;
    spaces_.clear();
    new_.clear();  // of a fork that was heard of with the last page
}

}  // namespace souk

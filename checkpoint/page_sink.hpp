// SPDX-License-Identifier: GPL-2.0-or-later
// PageSink: puts pages into restored processes while they wait or already run. CRIU restores them
// without the pages that a lazy dump left out, and hands over a userfaultfd(2) of each over a
// socket in the image directory (IMAGES/lazy-pages.socket; protocol: CRIU criu/uffd.c): a process
// that touches what is missing stands still until put() brings it. Pages that no image has read as
// zeros. Never blocks: poll fd() for reading and call on_readable.
//
// Owner: the receiver of a move, from before CRIU's restore until whole(). A sink that is dropped
// before leaves the missing pages as zeros, so the processes must be dead by then, or held in
// CRIU's restore. What fails: CRIU's protocol, or a kernel that refuses; then the capsule must be
// ended.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "checkpoint/pages.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

struct uffd_msg;

namespace souk {

inline constexpr const char* lazy_socket_name = "lazy-pages.socket";

// Fails if memory cannot go past an image on this machine (kernel/sys/host/probe.hpp has the
// needs), and says what is missing. Raises fs.pipe-max-size to what CRIU needs for that.
Status make_pages_possible();

class PageSink {
  public:
    // Listens; `ranges` as the image has them (lazy_ranges).
    static Result<PageSink> open(int image_directory, const std::vector<PageRange>& ranges);

    int fd() const { return epoll_.get(); }
    // Returns the pages that processes wait for now, in the image's addresses. Of each range a
    // process waits for the first page; the others lie behind it.
    Result<std::vector<PageRange>> on_readable();
    // CRIU holds at post-restore: every process is there, and takes any page from now on.
    Status restored();
    // Pages of the image; before restored() only what was waited for.
    Status put(const PageRange& range, std::string_view bytes);
    // Returns userfaultfds that came since the last call. Copies of them keep the processes from
    // reading zeros if this sink ends too early. Close the copies when the sink is whole.
    std::vector<int> new_uffds() { return std::exchange(new_, {}); }
    // Tells that nothing is missing any more: every userfaultfd is closed, and the processes are
    // like any others.
    bool whole() const { return missing_.empty() && spaces_.empty() && restored_; }
    uint64_t bytes_put() const { return bytes_put_; }

  private:
    // One address space of the restored job.
    struct Space {
        Fd uffd;
        pid_t pid = 0;  // of the image
        MissingPages missing;
        std::set<uint64_t> asked;  // image addresses
    };
    enum class Put : uint8_t { all, changed, gone };
    Status accept_one();
    Status on_socket();
    Status add_space(Fd uffd, pid_t pid, MissingPages missing);
    Status events(Space& space, std::vector<PageRange>& wishes);
    Status event(Space& space, const uffd_msg& message, std::vector<PageRange>& wishes);
    Status fault(Space& space, uint64_t address, std::vector<PageRange>& wishes);
    Result<Put> copy(Space& space, MissingPages::Piece piece, const char* bytes);
    Status put_in(Space& space, const PageRange& range, std::string_view bytes);
    void close_if_whole();

    Fd epoll_, listener_, socket_;
    bool restored_ = false;
    pid_t next_pid_ = 0;                     // its userfaultfd follows
    std::map<pid_t, MissingPages> missing_;  // of processes that CRIU has not handed over yet
    std::map<int, Space> spaces_;            // by the number of the userfaultfd
    std::vector<PageRange> wishes_;          // that came up outside of on_readable
    std::vector<int> new_;
    uint64_t bytes_put_ = 0;
};

}  // namespace souk

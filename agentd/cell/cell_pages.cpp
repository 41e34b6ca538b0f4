// SPDX-License-Identifier: GPL-2.0-or-later
// Cell, third part: memory that is not in the image. The source's is read out of the frozen job
// (PageSource); here the destination puts it in place (PageSink), before the job is told held
// (pages_first) or while it runs (post_copy): then nothing that it says leaves this node until all
// is there.
#include <poll.h>

#include "agentd/cell/cell.hpp"
#include "checkpoint/page_source.hpp"
#include "checkpoint/resident.hpp"

namespace souk {
namespace {
constexpr uint64_t acknowledge_bytes = 256 * 1024;
}

// Resident memory of each process alone says nothing of what they share. Where the kernel does not
// tell, it counts for each.
void Cell::count_shared(MoveFacts& facts) const {
    const auto pids =
        job_group_ ? job_group_->pids() : Result<std::vector<pid_t>>(fail("no control group"));
    const auto resident =
        pids ? resident_of(*pids) : Result<Resident>(tl::unexpected(pids.error()));
    if (!resident) return;
    facts.memory_bytes = resident->proportional;
    facts.shared_bytes = resident->shared_max();
    facts.image_bytes =
        resident->anonymous + resident->proportional - resident->anonymous_proportional;
}

// The job stands frozen and dumped. What its processes share goes with the image, in slices on the
// loop, which serves others meanwhile; then pages_are_shared. One process alone shares nothing.
void Cell::share_pages() {
    if (form_ == MoveForm::stop_and_copy) return pages_are_shared();
    const auto start = [&]() -> Status {
        TRY_ASSIGN(const auto pids, job_group_->pids());
        if (pids.size() < 2) return {};
        TRY_ASSIGN(sharing_, SharedImage::open(image_fd_.get(), pids_inside(pids)));
        return {};
    };
    if (auto started = start(); !started) {
        dump_trouble_ = started.error().message;
        return undo_dump();
    }
    sharing_ ? share_more() : pages_are_shared();
}

void Cell::share_more() {
    const auto more = sharing_->step();
    if (!more) {
        dump_trouble_ = more.error().message;
        return undo_dump();
    }
    if (!*more) return pages_are_shared();
    share_timer_ = site_.loop->after(Nanos{}, [this] { share_more(); });
}

void Cell::end_sharing() {
    share_timer_.cancel();
    sharing_.reset();
}

Result<std::unique_ptr<PageSource>> Cell::pages(Epoch to) const {
    if (!job_group_ || !image_fd_) return fail("the job does not stand frozen");
    TRY_ASSIGN(auto ranges, ranges_for(to));
    TRY_ASSIGN(const auto pids, job_group_->pids());
    TRY_ASSIGN(PageSource source, PageSource::open(std::move(ranges), pids_inside(pids)));
    return std::make_unique<PageSource>(std::move(source));
}

Status Cell::expect_faults() {
    if (form_ == MoveForm::stop_and_copy) return {};
    TRY_ASSIGN(const auto ranges, lazy_ranges(image_fd_.get()));
    TRY_ASSIGN(sink_, PageSink::open(image_fd_.get(), ranges));
    TRY_ASSIGN(sink_watch_,
               site_.loop->watch(sink_->fd(), POLLIN, [this](short) { page_faults(); }));
    return {};
}

void Cell::page_faults() {
    auto wishes = sink_->on_readable();
    if (!wishes) return pages_failed(wishes.error().message);
    for (const int uffd : sink_->new_uffds())
        if (form_ == MoveForm::post_copy) {
            const Status kept = link_.tell(&CapsuleClient::keep, uffd);
            if (!kept)
                return pages_failed("its capsule cannot keep its memory: " + kept.error().message);
        }
    want_pages(*wishes);
    if (sink_ && sink_->whole() && !pages_here_ && !page_read_) pages_are_whole();
}

// What is waited for is asked for at once, what was put is acknowledged now and then.
void Cell::want_pages(const std::vector<PageRange>& wishes) {
    if (page_read_) {
        for (const PageRange& wish : wishes) {
            auto read =
                page_read_->read(wish, [this](const PageRange& range, std::string_view bytes) {
                    return sink_->put(range, bytes);
                });
            if (!read) return pages_failed(read.error().message);
        }
        return;
    }
    const auto others = store_ ? serve_from_store(wishes) : wishes;
    if (!others) return pages_failed(others.error().message);
    const uint64_t put = sink_->bytes_put() - store_put_;  // of what the source has sent
    const bool acknowledge = pages_restored_ && put - pages_acknowledged_ >= acknowledge_bytes;
    if (others->empty() && !acknowledge) return;
    pages_acknowledged_ = put;
    site_.want_pages(key_, pages_restored_, pages_acknowledged_, *others);
}

Status Cell::put_pages(const PageRange& range, std::string_view bytes) {
    if (!sink_ || pages_here_) return {};
    if (auto put = sink_->put(range, bytes); !put) {
        pages_failed(put.error().message);
        return put;
    }
    page_faults();  // also what came up while they were put
    return {};
}

// CRIU holds the restored job.
void Cell::pages_may_come() {
    page_faults();  // the last userfaultfd may still lie in the socket
    if (auto all = sink_->restored(); !all) return pages_failed(all.error().message);
    pages_restored_ = true;
    if (page_read_) return read_pages();
    if (form_ == MoveForm::post_copy) tell(guest::RestoreHeld{});
    if (sink_->whole()) return pages_are_whole();
    pages_acknowledged_ = sink_->bytes_put() - store_put_;
    site_.want_pages(key_, true, pages_acknowledged_, {});
    if (store_) place_timer_ = site_.loop->after(Nanos{}, [this] { place_store(); });
}

void Cell::pages_are_whole() {
    sink_watch_.close();
    if (form_ == MoveForm::post_copy) (void)link_.tell(&CapsuleClient::let_go);
    place_timer_.cancel();
    store_.reset();
    pages_here_ = true;  // the sink stays until CRIU has said its last word to it
    site_.pages_whole(key_);
    if (form_ == MoveForm::pages_first) return tell(guest::RestoreHeld{});
    const bool ran = filling();
    stdio_.end_silence();
    tell(guest::PagesWhole{});
    if (!ran) return;
    if (has_job_) drop_image();
    stdio_.speak();
}

// The userfaultfds stay until the capsule is gone: without them missing memory would read as zeros.
void Cell::pages_failed(const std::string& why) {
    sink_watch_.close();
    place_timer_.cancel();
    site_.pages_refused(key_, why);
    tell(guest::PagesLost{why});
}

}  // namespace souk

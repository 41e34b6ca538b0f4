// SPDX-License-Identifier: GPL-2.0-or-later
// Cell, fourth part: frozen to disk, and thawed from there. What a lazy dump leaves out goes into a
// file of the image (checkpoint/page_file.hpp), on a loop that serves others meanwhile, before the
// job is told held; a thaw puts it in place from there, where the image lies without a copy of it,
// and checks it before the job may run. And the job's own files that other machines see: what it
// has written to them is synced before it goes on elsewhere.
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "agentd/cell/cell.hpp"

namespace souk {
namespace {
constexpr Nanos flush_limit = Nanos::from_s(5);  // the job stands meanwhile

// A link where both are on one file system, else a copy in the kernel.
Status link_or_copy(int from, int to, const std::string& name) {
    if (::linkat(from, name.c_str(), to, name.c_str(), 0) == 0) return {};
    if (errno != EXDEV) return fail_errno("link " + name, errno);
    TRY_ASSIGN(const Fd source, open_at(from, name, O_RDONLY));
    TRY_ASSIGN(const Fd target, open_at(to, name, O_WRONLY | O_CREAT | O_EXCL, 0600));
    for (;;) {
        const ssize_t n = ::sendfile(target.get(), source.get(), nullptr, 64 << 20);
        if (n == 0) return {};
        if (n < 0) return fail_errno("copy " + name, errno);
    }
}

}  // namespace

void Cell::write_pages() {
    if (form_ == MoveForm::stop_and_copy) return finish_image(nullptr);  // CRIU has written them
    const auto start = [&]() -> Status {
        TRY_ASSIGN(const auto pids, job_group_->pids());
        TRY_ASSIGN(page_write_,
                   PageFileWrite::start(*site_.loop, image_fd_.get(), pids_inside(pids),
                                        [this](const Result<ImageFile>& file) {
                                            page_write_.reset();
                                            if (file) return finish_image(&*file);
                                            dump_trouble_ = file.error().message;
                                            undo_dump();
                                        }));
        return {};
    };
    if (auto started = start(); !started) {
        dump_trouble_ = started.error().message;
        undo_dump();
    }
}

// On its way to another node an image gets its digests while it is sent; one that stays is sealed
// here and now.
void Cell::finish_image(const ImageFile* pages) {
    Manifest manifest = needs();
    const auto finish = [&]() -> Status {
        TRY_ASSIGN(manifest.files, digest_files(image_fd_.get(), pages));
        return seal(manifest);
    };
    if (auto finished = finish(); !finished) {
        dump_trouble_ = finished.error().message;
        return undo_dump();
    }
    dump_is_complete(false, manifest.bytes());
}

// -------------------------------------------------------------------------------------------------
// checkpoints

// A copy of all its memory beside it, for as long as it is on its way to its home: if that would be
// tight, on the disk.
bool Cell::fits_memory() const {
    struct statvfs fs {};
    if (!cgroup_ || ::fstatvfs(site_.ram.get(), &fs) != 0) return false;
    const auto held = cgroup_->memory_bytes();
    return held &&
           static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize / 2 >= static_cast<uint64_t>(*held);
}

void Cell::make_place() {
    to_disk_ = true;
    auto images = create_image(site_.images.get(), key_.text());
    if (!images) return tell(guest::CapsuleFailed{images.error().message});
    image_fd_ = std::move(*images);
    tell(guest::CapsuleReady{});
}

void Cell::keep(const Manifest& manifest, std::function<void(const Status&)> done) {
    keeping_ = std::make_unique<Keeping>(Keeping{manifest, std::move(done), {}, 0});
    keep_next();
}

// One file after the other; sealing it then has nothing left to write but the manifest and the
// names.
void Cell::keep_next() {
    Keeping& k = *keeping_;
    const auto sync = [&](const std::string& name) -> Status {
        TRY_ASSIGN(const Fd file, open_at(image_fd_.get(), name, O_RDONLY | O_NOFOLLOW));
        TRY_ASSIGN(k.sync, site_.loop->sync(file.get(), 0, 0, [this](const Status& synced) {
            synced ? keep_next() : end_keeping(synced);
        }));
        return {};
    };
    if (k.next == k.manifest.files.size()) return end_keeping(seal(k.manifest));
    if (const Status begun = sync(k.manifest.files[k.next++].name); !begun) end_keeping(begun);
}

void Cell::end_keeping(const Status& kept) {
    const auto ended = std::move(keeping_);
    if (kept) {
        read_ends(image_fd_.get());
        image_fd_.reset();
    }
    const Status copy = kept;
    ended->done(copy);
}

// How far its streams had come.
void Cell::read_ends(int image) {
    souk_residue r;
    const auto file = open_at(image, SOUK_RESIDUE_NAME, O_RDONLY);
    if (!file || ::pread(file->get(), &r, sizeof r, 0) != sizeof r) return;
    StreamEnds ends;
    for (int i = 0; i < SOUK_STREAMS; ++i) ends.output[i] = r.out[i].end;
    ends.input = r.input_offset + r.input_len;
    stdio_.set_ends(ends);
}

// Thaw where the image lies: the files are linked, not copied; the source keeps its own until it is
// dropped.
void Cell::restore_local(const Cell* source) {
    plan_ = Plan::restoring;
    if (!source) return criu_failed("its image is not here");
    const auto take = [&]() -> Status {
        TRY_ASSIGN(const Fd from, source->open_sealed());
        TRY_ASSIGN(const Manifest manifest, verify_image(from.get(), page_file_name));
        for (const ImageFile& file : manifest.files) {
            if (file.name != page_file_name)
                TRY(link_or_copy(from.get(), image_fd_.get(), file.name));
        }
        return find_page_file(from.get(), manifest);
    };
    if (auto taken = take(); !taken) return criu_failed("take its image: " + taken.error().message);
    load_image();
}

// An image that came from another node, and was checked on its way.
Status Cell::find_page_file() {
    TRY_ASSIGN(const Manifest manifest, read_manifest(image_fd_.get()));
    return find_page_file(image_fd_.get(), manifest);
}

Status Cell::find_page_file(int directory, const Manifest& manifest) {
    for (const ImageFile& file : manifest.files) {
        if (file.name != page_file_name) continue;
        if (!site_.pages_possible)
            return fail("its memory cannot be put in place on this machine: souk doctor says why");
        TRY_ASSIGN(Fd pages, open_at(directory, page_file_name, O_RDONLY | O_NOFOLLOW));
        TRY_ASSIGN(auto ranges, lazy_ranges(image_fd_.get()));
        TRY_ASSIGN(page_read_, PageFileRead::open(*site_.loop, std::move(pages), std::move(ranges),
                                                  file.digest));
        form_ = MoveForm::pages_first;
    }
    return {};
}

Status Cell::put_file_pages(const PageRange& range, std::string_view bytes) {
    TRY(sink_->put(range, bytes));
    page_faults();  // also what came up while they were put
    return {};
}

// CRIU holds the restored job, and all of its memory may come.
void Cell::read_pages() {
    page_read_->start([this](const PageRange& range,
                             std::string_view bytes) { return put_file_pages(range, bytes); },
                      [this](const Status& all) {
                          page_read_.reset();
                          if (!all) return pages_failed(all.error().message);
                          if (!sink_->whole()) return pages_failed("its image lacks memory");
                          pages_are_whole();
                      });
}

// What other machines are to see of its files, before it goes on there.
void Cell::flush_files() {
    const auto give_up = [this](const std::string& why) {
        dump_trouble_ = "write its files: " + why;
        undo_dump();
    };
    if (flush_->files.empty()) return files_are_flushed();
    if (!flush_->limit.waiting())
        flush_->limit =
            site_.loop->after(flush_limit, [give_up] { give_up("their server does not answer"); });
    auto begun =
        site_.loop->sync(flush_->files.back().get(), 0, 0, [this, give_up](const Status& synced) {
            flush_->files.pop_back();
            synced ? flush_files() : give_up(synced.error().message);
        });
    if (begun)
        flush_->sync = std::move(*begun);
    else
        give_up(begun.error().message);
}

// While it runs: a job without such a mount has nothing to be looked at when it stands.
void Cell::look_at_mounts() {
    network_devices_.clear();
    const auto pids =
        job_group_ && !to_disk_ ? job_group_->pids() : Result<std::vector<pid_t>>(fail(""));
    if (!pids || pids->empty()) return;
    if (const auto mounts =
            read_file(AT_FDCWD, "/proc/" + std::to_string(pids->front()) + "/mountinfo"))
        network_devices_ = network_devices(*mounts, site_.is_network);
}

}  // namespace souk

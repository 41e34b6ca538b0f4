// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/image_keeper.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>

#include "agentd/daemon/file_systems.hpp"
#include "checkpoint/frozen_memory.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk {
namespace {

constexpr uint64_t image_beside = uint64_t{1} << 30;  // files that the job has deleted

Result<uint64_t> image_bytes_free(int directory) {
    struct statvfs fs {};
    if (::fstatvfs(directory, &fs) != 0) return fail_errno("room for an image", errno);
    return static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize;
}

ImageSeal seal_of(const GuestJob& job, const JobId& id, Epoch from, Epoch to) {
    ImageSeal seal;
    seal.job = id;
    seal.from = from;
    seal.to = to;
    seal.uid = job.spec.launch.uid;
    seal.gid = job.spec.launch.gid;
    return seal;
}

}  // namespace

Status ImageKeeper::open(int ram) {
    TRY_ASSIGN(secrets_, DiskSecrets::open(ram));
    return {};
}

std::string ImageKeeper::ticket(const GuestKey& key) const {
    const auto shown = shown_.find(key);
    return shown == shown_.end() ? "" : shown->second;
}

void ImageKeeper::note(const NodeName& from, const GuestCommand& command) {
    if (from != command.id.home) return;
    if (!command.ticket.empty()) shown_[{command.id, command.epoch}] = command.ticket;
    if (const auto secret = trust::from_hex(command.disk_secret); secret && !secret->empty())
        if (const auto kept = secrets_.keep({command.id, command.epoch}, *secret); !kept)
            log_.warning("a key is in memory alone",
                         {{"JOB", command.id.text()}, {"WHY", kept.error()}});
    const auto key = trust::from_hex(command.image_key);
    if (!key) return;  // the destination will say that the tag is another one
    const GuestKey of{command.id, command.epoch};
    const GuestVerb verb = command.verb;
    if (verb == GuestVerb::prepare || verb == GuestVerb::keep) coming_[of] = *key;
    if (verb == GuestVerb::ship || verb == GuestVerb::checkpoint)
        going_[of] = {command.new_epoch, *key};
}

void ImageKeeper::forget(const GuestKey& key) {
    coming_.erase(key);
    going_.erase(key);
    shown_.erase(key);
    secrets_.forget(key);
}

ImageSeal ImageKeeper::seal_of_going(const GuestKey& of, Epoch to) const {
    const auto key = going_.find(of);
    const GuestJob* job = machine_.find(of);
    if (key == going_.end() || key->second.to != to || !job) return {};
    ImageSeal seal = seal_of(*job, of.id, of.epoch, to);
    seal.key = key->second.key;
    seal.source = config_.node;
    return seal;
}

ImageSeal ImageKeeper::seal_of_coming(const GuestKey& to, const NodeName& sender,
                                      Epoch from) const {
    const auto key = coming_.find(to);
    const GuestJob* job = machine_.find(to);
    if (key == coming_.end() || !job) return {};
    ImageSeal seal = seal_of(*job, to.id, from, to.epoch);
    seal.key = key->second;
    seal.source = sender;
    seal.destination = config_.node;
    return seal;
}

// Says how many bytes of images that user may still have in the directory `images`. Images of jobs
// that are frozen here, and checkpoints, lie on the disk; images that are being written count as
// far as they are written. How large the next one will be is not known yet, because the memory that
// a group holds has caches of files in it.
Result<uint64_t> ImageKeeper::bytes_left(uint32_t uid, int images) const {
    if (uid == 0) return UINT64_MAX;
    uint64_t taken = 0;
    bool alone = true;
    for (const auto& [key, cell] : cells_) {
        const GuestJob* job = machine_.find(key);
        if (!job) continue;
        const bool is_whole = job->kept || job->state == GuestState::frozen;
        const uint64_t written = cell->bytes_written();
        if (!is_whole && written == 0) continue;
        alone &= job->spec.launch.uid == uid;
        if (job->spec.launch.uid == uid)
            taken += std::max(is_whole ? static_cast<uint64_t>(job->image_bytes) : 0, written);
    }
    // The usual share keeps room for others. It holds nobody back where no other's image is.
    if (alone && config_.user_images_mb < 0) return UINT64_MAX;
    const auto left = image_share_left(images, config_.user_images_mb, taken);
    if (!left) return fail(CauseCode::image_has_no_room, left.error().message);
    return *left;
}

Status ImageKeeper::has_room(const GuestKey& key) const {
    TRY_ASSIGN(const Fd images, open_at(AT_FDCWD, config_.state + "/images", O_PATH | O_DIRECTORY));
    if (const Status room = disk_has_room(images.get(), config_.disk_reserve_bytes()); !room)
        return fail(CauseCode::image_has_no_room, room.error().message);
    const GuestJob* job = machine_.find(key);
    if (job) TRY(bytes_left(job->spec.launch.uid, images.get()));
    return {};
}

// An image holds the memory that the capsule may have, in its own file systems too, and files that
// the job has deleted.
Result<Transfers::Place> ImageKeeper::place(const GuestKey& key) const {
    Cell* c = find_cell(cells_, key);
    if (!c) return fail("no capsule waits for it");
    Transfers::Place place;
    TRY_ASSIGN(place.image, c->image());
    place.key = c->image_key();
    TRY_ASSIGN(place.bytes_max, image_bytes_free(place.image.get()));
    const uint64_t memory = memory_bytes_max(key);
    place.bytes_max =
        std::min(place.bytes_max, memory + std::min(image_beside, UINT64_MAX - memory));
    if (const GuestJob* job = machine_.find(key); job && job->kept) {
        TRY_ASSIGN(const uint64_t left, bytes_left(job->spec.launch.uid, place.image.get()));
        place.bytes_max = std::min(place.bytes_max, left);
    }
    return place;
}

// The ticket bounds the memory of the processes, and as much again in the capsule's own file
// systems.
uint64_t ImageKeeper::memory_bytes_max(const GuestKey& key) const {
    const GuestJob* job = machine_.find(key);
    return job && job->memory_mb > 0 ? static_cast<uint64_t>(job->memory_mb) << 21 : UINT64_MAX;
}

Status ImageKeeper::check_memory(const GuestKey& key, uint64_t bytes) const {
    const uint64_t most = memory_bytes_max(key);
    if (bytes <= most) return {};
    return fail("more memory than its ticket allows: " + std::to_string(bytes >> 20) + " MB, not " +
                std::to_string(most >> 20));
}

Status ImageKeeper::check_left_out(const GuestKey& key, const Cell& c) const {
    TRY_ASSIGN(const Fd image, c.image());
    TRY_ASSIGN(const auto ranges, lazy_ranges(image.get()));
    uint64_t pages = 0;
    for (const PageRange& r : ranges)
        pages =
            r.pages > UINT64_MAX / page_bytes - pages ? UINT64_MAX / page_bytes : pages + r.pages;
    return check_memory(key, pages * page_bytes);
}

// The image lies where it was until its home lets go of it, and then with the others that were
// refused.
void ImageKeeper::refused(const GuestKey& key, const std::string& why) const {
    Cell* c = find_cell(cells_, key);
    if (!c) return;
    c->refuse_image(!why.empty());
    if (why.empty()) return;
    log_.warning("an image is refused, and kept when its job goes on without it",
                 {{"JOB", key.id.text()},
                  {"EPOCH", key.epoch.n},
                  {"as", config_.state + "/refused/" + key.text()},
                  {"WHY", why}});
}

}  // namespace souk

// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/cell_image.hpp"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agentd/cell/refused_images.hpp"
#include "checkpoint/kept_sockets.hpp"
#include "checkpoint/page_file.hpp"
#include "kernel/base/cause.hpp"

namespace souk {
namespace {

constexpr uint64_t slack_bytes = 2 << 20;

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

Result<uint64_t> bytes_free(int directory) {
    struct statvfs fs {};
    if (::fstatvfs(directory, &fs) != 0) return fail_errno("room for its image", errno);
    return static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize;
}

}  // namespace

CellImage::CellImage(Loop& loop, Places places, GuestKey key)
    : loop_(loop),
      places_(std::move(places)),
      key_(std::move(key)),
      on_disk_(::faccessat(places_.disk, key_.text().c_str(), F_OK, 0) == 0) {}

Status CellImage::begin() {
    none_ = false;
    disk_key_ = {};
    stage_.reset();
    TRY_ASSIGN(fd_, create_image(parent(), key_.text()));
    return {};
}

Status CellImage::begin_encrypted(std::string_view secret) {
    TRY(begin());
    if (!on_disk_) return {};
    TRY_ASSIGN(disk_key_, DiskKey::make(secret, key_.id, key_.epoch));
    return {};
}

Status CellImage::begin_dump(std::string_view secret, bool memory_has_room) {
    TRY(begin_encrypted(secret));
    if (!disk_key_ || !memory_has_room) return {};
    TRY_ASSIGN(stage_, create_image(places_.memory, key_.text()));
    return {};
}

void CellImage::close() {
    fd_.reset();
    if (!stage_) return;
    stage_.reset();
    drop_stage();
}

void CellImage::drop_stage() {
    if (on_disk_) (void)remove_image(places_.memory, key_.text());
}

// Files that are encrypted where they lie are there twice meanwhile.
Status CellImage::room(uint64_t bytes, uint64_t bytes_of_pages) const {
    const auto check = [](int directory, uint64_t need, const char* where) -> Status {
        TRY_ASSIGN(const uint64_t free, bytes_free(directory));
        if (free >= need) return {};
        return fail_because(CauseCode::image_has_no_room,
                            {{"text", "no room for its image: about " + std::to_string(need >> 20) +
                                          " MB are needed, " + std::to_string(free >> 20) +
                                          " MB are free " + where}});
    };
    const char *disk = "on the disk of the state directory", *memory = "in memory for images";
    if (stage_) TRY(check(stage_.get(), bytes + slack_bytes, memory));
    const uint64_t twice = disk_key_ && !stage_ ? bytes : 0;
    return check(fd_.get(), bytes + twice + bytes_of_pages + slack_bytes, on_disk_ ? disk : memory);
}

bool CellImage::memory_has_room(uint64_t bytes) const {
    const auto free = bytes_free(places_.memory);
    return free && *free >= bytes + slack_bytes;
}

bool CellImage::fits_memory(uint64_t bytes) const {
    const auto free = bytes_free(places_.memory);
    return free && *free / 2 >= bytes;
}

uint64_t CellImage::bytes() const { return image_bytes(fd()); }

Status CellImage::seal(const Manifest& manifest) {
    if (disk_key_) {
        Manifest signed_one = manifest;
        sign_manifest(signed_one, disk_key_);
        return seal_image(parent(), key_.text(), signed_one, Durability::disk);
    }
    return seal_image(parent(), key_.text(), manifest,
                      on_disk_ ? Durability::disk : Durability::memory);
}

Result<uint64_t> CellImage::seal_files(Manifest manifest, const ImageFile* pages) {
    if (disk_key_) {
        TRY_ASSIGN(manifest.files, encrypt_files(fd(), fd_.get(), disk_key_, pages));
    } else {
        TRY_ASSIGN(manifest.files, digest_files(fd_.get(), pages));
    }
    TRY(seal(manifest));
    return manifest.bytes();
}

Status CellImage::unseal() const { return unseal_image(parent(), key_.text()); }

Status CellImage::add(const std::string& name, std::string_view bytes) {
    TRY_ASSIGN(const Fd whole, open_whole());
    TRY_ASSIGN(Manifest manifest, read_manifest(whole.get()));
    if (manifest.salt.empty() != !disk_key_) return fail("its key is not here");  // after a restart
    ImageFile added{name, bytes.size(), {}};
    if (disk_key_) {
        TRY_ASSIGN(Fd file, open_at(whole.get(), name, O_WRONLY | O_CREAT | O_TRUNC, 0600));
        TRY_ASSIGN(EncryptedWriter writer,
                   EncryptedWriter::open(std::move(file), name, disk_key_, bytes.size()));
        TRY(writer.add(bytes));
        TRY_ASSIGN(added, writer.end());
    } else {
        TRY(create_file(whole.get(), name, bytes));
        Digest digest;
        digest.add(bytes);
        added.digest = digest.hex();
    }
    std::erase_if(manifest.files, [&](const ImageFile& f) { return f.name == name; });
    manifest.files.insert(std::ranges::upper_bound(manifest.files, name, {}, &ImageFile::name),
                          std::move(added));
    if (disk_key_) sign_manifest(manifest, disk_key_);
    return add_to_manifest(whole.get(), manifest, name,
                           on_disk_ ? Durability::disk : Durability::memory);
}

// -------------------------------------------------------------------------------------------------
// one that came and stays

void CellImage::keep(const Manifest& manifest, std::function<void(const Status&)> done) {
    keeping_ = std::make_unique<Keeping>(Keeping{manifest, std::move(done), {}, 0});
    keep_next();
}

// One file after the other; sealing it then has nothing left to write but the manifest and the
// names.
void CellImage::keep_next() {
    Keeping& k = *keeping_;
    const auto sync = [&](const std::string& name) -> Status {
        TRY_ASSIGN(const Fd file, open_at(fd_.get(), name, O_RDONLY | O_NOFOLLOW));
        TRY_ASSIGN(k.sync, loop_.sync(file.get(), 0, 0, [this](const Status& synced) {
            synced ? keep_next() : end_keeping(synced);
        }));
        return {};
    };
    if (k.next == k.manifest.files.size()) return end_keeping(seal(k.manifest));
    if (const Status begun = sync(k.manifest.files[k.next++].name); !begun) end_keeping(begun);
}

void CellImage::end_keeping(const Status& kept) {
    const auto ended = std::move(keeping_);
    ended->done(kept);
}

// -------------------------------------------------------------------------------------------------
// from there to here, and its end

Status CellImage::link_from(int other, const Manifest& manifest, const DiskKey& key) const {
    if (key) return decrypt_files(other, manifest, key, fd_.get(), page_file_name);
    for (const ImageFile& file : manifest.files) {
        if (file.name != page_file_name) TRY(link_or_copy(other, fd_.get(), file.name));
    }
    return {};
}

void CellImage::settle(int parent, const std::string& name, bool job_has_sockets) const {
    const auto image = open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (image && has_kept_sockets(image->get()))
        (void)places_.settle(image->get(), job_has_sockets);
}

Status CellImage::drop(bool job_has_sockets) {
    drop_.cancel();
    keeping_.reset();
    fd_.reset();
    stage_.reset();
    if (none_) return {};
    for (const int parent : {places_.memory, places_.disk}) {
        for (const char* suffix : {"", ".part"})
            settle(parent, key_.text() + suffix, job_has_sockets);
    }
    (void)remove_image(places_.memory, key_.text());
    Status kept;
    if (std::exchange(refused_, false) && places_.refused >= 0)
        kept = keep_refused_image(places_.disk, key_.text(), places_.refused);
    (void)remove_image(places_.disk, key_.text());
    return kept;
}

void CellImage::later(Nanos after, std::function<void()> drop) {
    drop_ = loop_.after(after, std::move(drop));
}

}  // namespace souk

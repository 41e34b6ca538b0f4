// SPDX-License-Identifier: GPL-2.0-or-later
// CellImage: the image of one (job, epoch), while it is made by a dump, while it comes from another
// node, and when it is whole (checkpoint/images.hpp). It lies in memory on its way, and on disk if
// the job is frozen there.
//
// An image that stays on the disk is encrypted, if the home of the job has given a key
// (checkpoint/encrypted_file.hpp). CRIU writes plain files: a dump to disk has them in a directory
// in memory, from where they are encrypted to the disk when it is sealed. If memory has no room for
// that, they are plain on the disk until then.
//
// Owned by the Cell; what is on disk outlives it. What fails: the file system, no room.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agentd/core/guest_io.hpp"
#include "checkpoint/encrypted_file.hpp"
#include "checkpoint/images.hpp"
#include "checkpoint/kept_sockets.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

class CellImage {
  public:
    // The directories of images.
    struct Places {
        int disk = -1;
        int memory = -1;
        int refused = -1;  // for images that were refused; none: they are not kept
        std::function<Status(int image, bool runs)> settle = settle_sockets;
    };
    // The image is on disk if one of that name is there.
    CellImage(Loop& loop, Places places, GuestKey key);

    bool on_disk() const { return on_disk_; }
    void place(bool on_disk) { on_disk_ = on_disk; }

    // There never was an image of that name. Until the first begins there is nothing to drop.
    void has_none() { none_ = true; }
    // Makes it anew, and empty. An older image of this name is removed.
    Status begin();
    // Makes one whose files come encrypted with key(), on the disk. No `secret`: plain.
    Status begin_encrypted(std::string_view secret);
    // Makes one for a dump to the disk.
    Status begin_dump(std::string_view secret, bool memory_has_room);
    // The directory in which a dump or its restore has its files.
    int fd() const { return stage_ ? stage_.get() : fd_.get(); }
    // The directory to which the file of pages goes.
    int target() const { return fd_.get(); }
    const DiskKey& key() const { return disk_key_; }
    explicit operator bool() const { return static_cast<bool>(fd_); }
    void close();
    // Opens the image that is made or received, else the whole one.
    Result<Fd> open() const { return fd_ ? duplicate(fd_.get()) : open_whole(); }
    Result<Fd> open_whole() const { return open_image(parent(), key_.text()); }

    // An error: less than that, and a little more, is free for the files of CRIU and for pages.
    Status room(uint64_t bytes, uint64_t bytes_of_pages = 0) const;
    // A copy of that size beside its original is no strain for memory.
    bool fits_memory(uint64_t bytes) const;
    // Memory has as much free as room() wants.
    bool memory_has_room(uint64_t bytes) const;
    // The bytes of all its files now.
    uint64_t bytes() const;

    // It is whole now.
    Status seal(const Manifest& manifest);
    // Reads through the files that are there, and seals them; `pages` is known already, or null.
    // Returns their bytes.
    Result<uint64_t> seal_files(Manifest manifest, const ImageFile* pages);
    // Takes the word back that it is whole, of one in memory: it is about to be sent.
    Status unseal() const;
    // A small file more of the one that is whole: on the disk, and in the manifest, when this
    // returns.
    Status add(const std::string& name, std::string_view bytes);
    // The same for one that came, once every file of it is on the disk. The loop goes on meanwhile.
    // `done` is called once, or never if the image is dropped before. The manifest of one that is
    // encrypted is signed here.
    void keep(const Manifest& manifest, std::function<void(const Status&)> done);

    // The files of another one, which keeps them, plain.
    Status link_from(int other, const Manifest& manifest, const DiskKey& key = {}) const;
    // Drops the files of a dump that ended with its daemon: the whole image is on the disk.
    void drop_stage();

    // The whole one on the disk is not what it should be: drop() moves it to the refused ones.
    void refuse(bool refused) { refused_ = refused; }
    // Whole or not, and whatever a crashed daemon has left. job_has_sockets: the job runs with the
    // sockets that lie there. An error: it was refused, is not kept for that reason, and is
    // removed.
    Status drop(bool job_has_sockets);
    // Calls `drop`, unless the image is dropped before.
    void later(Nanos after, std::function<void()> drop);

  private:
    void settle(int parent, const std::string& name, bool job_has_sockets) const;
    struct Keeping {
        Manifest manifest;
        std::function<void(const Status&)> done;
        Sync sync;
        size_t next = 0;  // file
    };
    int parent() const { return on_disk_ ? places_.disk : places_.memory; }
    void keep_next();
    void end_keeping(const Status& kept);

    Loop& loop_;
    Places places_;
    GuestKey key_;
    bool on_disk_;
    bool none_ = false, refused_ = false;
    Fd fd_;
    Fd stage_;  // in memory; none: the files are where they stay
    DiskKey disk_key_;
    std::unique_ptr<Keeping> keeping_;
    Timer drop_;
};

}  // namespace souk

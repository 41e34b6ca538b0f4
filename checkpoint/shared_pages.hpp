// SPDX-License-Identifier: GPL-2.0-or-later
// SharedPages: which pages the processes of a job share copy-on-write, and how an image has each of
// them once. Pure; the looks at the kernel's page tables and the file are in
// checkpoint/shared_image.
//
// A lazy dump leaves private memory out, page by page of each process: what fork(2) has shared
// would be sent and put in place once for each of them. CRIU restores what an image has as it was:
// a child inherits its parent's mapping, and keeps the parent's page where its own in the image is
// the same (criu/mem.c, restore_priv_vma_content). So what two or more processes have at the same
// address goes into the image, all else stays lazy. One file has the pages of all, each once, in
// the order of addresses; each pagemap names its own of them and skips the others
// (pagemap_image.hpp).
//
// Pages at different addresses (mremap(2), merged by KSM), and pages that siblings share without
// their parent, stay apart, as CRIU itself leaves them. They cross once where the address is the
// same, and are separate over there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "checkpoint/pagemap_image.hpp"

namespace souk {

class SharedPages {
  public:
    static constexpr uint64_t block_pages = 512;

    // Pages in a row of the common file, and where their bytes are.
    struct Run {
        size_t process = 0;  // index
        // in that process's own file, from page old_page on; else in its memory
        bool present = false;
        uint64_t start = 0, pages = 0;
        uint64_t old_page = 0;
    };
    // A part of the address space in which these processes have pages, by index.
    struct Block {
        uint64_t start = 0;  // block_pages of it
        std::vector<size_t> processes;
    };

    // `maps`: as CRIU has left them, by pid. Error: they need the image of a dump before.
    static Result<SharedPages> open(std::vector<PagemapImage> maps);

    // The next block in which two processes or more have pages that may be shared; none: no such
    // are left.
    bool next();
    const Block& block() const { return block_; }
    // entries[i * block_pages + n]: of /proc/PID/pagemap, of page n of the block, as
    // block().processes[i] has it. 0: taken for not shared. Empty: nothing is shared in this block.
    void take(const std::vector<uint64_t>& entries);
    // Tells whether any of such entries may be of a page that is shared.
    static bool any_shared(const std::vector<uint64_t>& entries);

    // Call it after the last block. Returns how many pages several processes left out and now have
    // in common. If there are none, the image is best left as it is.
    uint64_t pages_shared() const { return shared_; }
    const std::vector<Run>& runs() const { return runs_; }
    uint64_t pages_in_file() const { return file_pages_; }
    // Returns the maps in the order of open(). The file with the pages has that number.
    std::vector<PagemapImage> pagemaps(uint32_t file) const;

  private:
    struct Process {
        PagemapImage old;
        size_t index = 0;                          // the entry that is looked at next
        uint64_t done = 0;                         // pages of it
        uint64_t present = 0;                      // pages in its file before that
        std::vector<PagemapImage::Entry> entries;  // new
        uint64_t file_page = 0;                    // behind its last page in the common file
    };
    // A piece is a run of pages of one process in the block.
    struct Piece {
        size_t place = 0;  // of the process in the block
        uint64_t start = 0, pages = 0;
        bool present = false;
        uint64_t old_page = 0;  // of what is present
    };
    enum class Has : uint8_t { nothing, left_out, present };
    // This says what becomes of a page of one process.
    struct Fate {
        Has has = Has::nothing;  // in the new image
        size_t leader = 0;       // present: whose page it is, by its place in the block
        bool operator==(const Fate&) const = default;
    };

    uint64_t start_of_next() const;
    void hold(size_t place);
    void take_apart();
    void spread();
    void decide(uint64_t page, const std::vector<uint64_t>& entries);
    void emit(uint64_t first, uint64_t end);
    void add_run(const Run& run);
    static void add_present(Process& process, uint64_t start, uint64_t pages, uint64_t file_page);
    static void add_lazy(Process& process, uint64_t start, uint64_t pages);

    std::vector<Process> processes_;
    Block block_;
    std::vector<Piece> pieces_;       // of the block
    std::vector<Has> has_;            // of each page, by place in the block and page
    std::vector<uint64_t> old_page_;  // of what is present, the same way
    std::vector<Fate> fates_, before_;
    std::vector<std::pair<uint64_t, size_t>> same_;  // identity, place in the block
    std::vector<Run> runs_;
    uint64_t file_pages_ = 0, shared_ = 0;
};

}  // namespace souk

// SPDX-License-Identifier: GPL-2.0-or-later
// This header tells what was sent of a running job's memory, and what of that is still true. Pure;
// the looks at the kernel's page tables are in checkpoint/precopy_source.
//
// The kernel marks a page that is written to after /proc/PID/clear_refs (soft-dirty;
// Documentation/admin-guide/mm/ soft-dirty.rst, pagemap.rst). A page that was sent from an address
// counts as long as in each later look, at a process that stands still, the same physical page (or
// swap slot) lies at that address and is not marked: so neither munmap(2) nor madvise(2), nor a
// mapping that mremap(2) put there with its marks untouched (whole page tables move without one),
// can pass for what was sent.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/pages.hpp"
#include "kernel/base/result.hpp"

namespace souk {

// One line of /proc/PID/maps: private memory without a file that somebody may read or write.
struct PrivateMapping {
    uint64_t start = 0, end = 0;
    bool operator==(const PrivateMapping&) const = default;
};
struct ProcessMaps {
    std::vector<PrivateMapping> mappings;
    bool has_aio = false;  // the kernel writes to its memory past its page table
};
// An error if that is no such file.
Result<ProcessMaps> parse_maps(std::string_view maps);

// An entry of /proc/PID/pagemap.
namespace pagemap {
// number of the page, or type and place in swap
inline constexpr uint64_t frame = (uint64_t{1} << 55) - 1;
inline constexpr uint64_t soft_dirty = uint64_t{1} << 55, exclusive = uint64_t{1} << 56,
                          of_file = uint64_t{1} << 61, swapped = uint64_t{1} << 62;
inline constexpr uint64_t present = uint64_t{1} << 63;
inline constexpr uint64_t identity = frame | of_file | swapped | present;
// Tells that no other process maps the page, nor this process twice. Pinning such a page for
// reading, as process_vm_readv(2) does, makes no copy of it.
inline bool is_exclusive(uint64_t entry) { return (entry & exclusive) != 0; }
inline bool has_page(uint64_t entry) { return (entry & (present | swapped)) != 0; }
}  // namespace pagemap

// Holds the pages of one process.
class SentPages {
  public:
    struct Page {
        uint64_t address = 0, entry = 0;  // entry: of pagemap
        bool operator==(const Page&) const = default;
    };
    // A look at the process while it stands still: every page that it has, by address. Returns the
    // addresses of those that must be sent (again); the rest is as it was sent. The next look is
    // told what was sent of them meanwhile.
    std::vector<uint64_t> look(std::vector<Page> now);
    // Tells whether the page is the one of the last look, unmarked since: `entry` was read just
    // now.
    bool unchanged(uint64_t address, uint64_t entry) const;
    // The page was sent as it was found by the last look or later.
    void sent(uint64_t address);
    // Returns the pages that were sent and are, by the last look, still the same; by address.
    std::vector<PageRange> valid(pid_t pid) const;

  private:
    static constexpr uint64_t is_sent = pagemap::soft_dirty;  // that bit of an entry says so here
    std::vector<Page> pages_;  // of the last look, by address; entry: identity and is_sent
};

// Splits `ranges` into what is in `of` and what is not. Both are sorted by pid and address, each
// without overlaps.
struct SplitRanges {
    std::vector<PageRange> in, out;
};
SplitRanges split_ranges(const std::vector<PageRange>& ranges, const std::vector<PageRange>& of);
uint64_t bytes_of(const std::vector<PageRange>& ranges);

// The file of an image that says which of its pages were sent ahead, and, if that is to be checked,
// the digest of their bytes in this order. 16 bytes a range.
inline constexpr const char* precopy_file_name = "sent-ahead.img";
inline constexpr size_t precopy_file_bytes_max = 64 << 20;
struct PrecopyList {
    std::vector<PageRange> ranges;  // by pid and address
    std::string digest;             // hexadecimal; empty: not to be checked
    bool operator==(const PrecopyList&) const = default;
};
std::string encode_precopy(const PrecopyList& list);
Result<PrecopyList> decode_precopy(std::string_view file);

}  // namespace souk

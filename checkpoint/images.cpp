// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/images.hpp"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // AVX2 and more where the CPU has them: twice as fast
#endif

#include <algorithm>
#include <cerrno>
#include <memory>

#include "kernel/base/check.hpp"

namespace souk {
namespace {
constexpr size_t piece_bytes = 256 * 1024;

std::string part_of(const std::string& name) { return name + ".part"; }

Status read_through(int directory, const std::string& name, Digest& digest, uint64_t& bytes) {
    TRY_ASSIGN(const Fd file, open_at(directory, name, O_RDONLY | O_NOFOLLOW));
    const auto buffer = std::make_unique_for_overwrite<char[]>(piece_bytes);
    bytes = 0;
    for (;;) {
        const ssize_t n = ::read(file.get(), buffer.get(), piece_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno("read " + name, errno);
        if (n == 0) return {};
        digest.add({buffer.get(), static_cast<size_t>(n)});
        bytes += static_cast<uint64_t>(n);
    }
}

Result<uint64_t> file_bytes_of(int directory, const std::string& name) {
    struct stat st {};
    if (::fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
        return fail_errno("look at " + name, errno);
    return static_cast<uint64_t>(st.st_size);
}

Status sync_file(int directory, const std::string& name) {
    TRY_ASSIGN(const Fd file, open_at(directory, name, O_RDONLY));
    if (::fdatasync(file.get()) != 0) return fail_errno("sync " + name, errno);
    return {};
}

Status remove_directory(int parent, const std::string& name) {
    const auto directory = open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!directory)
        return directory.error().code == ENOENT ? Status{}
                                                : wrap("remove an image", directory.error());
    TRY_ASSIGN(const auto names, list_dir(directory->get(), "."));
    for (const std::string& file : names)
        if (::unlinkat(directory->get(), file.c_str(), 0) != 0)
            return fail_errno("remove image file " + file, errno);
    if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0)
        return fail_errno("remove image " + name, errno);
    return {};
}
}  // namespace

uint64_t image_bytes(int directory) {
    uint64_t sum = 0;
    const auto names = list_dir(directory, ".");
    if (!names) return 0;
    for (const std::string& name : *names) {
        struct stat st {};
        if (::fstatat(directory, name.c_str(), &st, 0) == 0)
            sum += static_cast<uint64_t>(st.st_size);
    }
    return sum;
}

uint64_t digest64(std::string_view bytes, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Digest::Digest() : state_(XXH3_createState()) { reset(); }
Digest::~Digest() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void Digest::reset() { XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_)); }
void Digest::add(std::string_view bytes) {
    XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}
std::string Digest::hex() const {
    const XXH128_hash_t h = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
    char text[33];
    std::snprintf(text, sizeof text, "%016lx%016lx", static_cast<unsigned long>(h.high64),
                  static_cast<unsigned long>(h.low64));
    return text;
}

uint64_t Manifest::bytes() const {
    uint64_t sum = 0;
    for (const ImageFile& f : files) sum += f.bytes;
    return sum;
}

Result<Machine> this_machine(const std::string& criu_version) {
    Machine m;
    utsname names;
    if (::uname(&names) != 0) return fail_errno("uname", errno);
    m.architecture = names.machine;
    m.kernel = names.release;
    m.criu = criu_version;
    m.page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    TRY_ASSIGN(const std::string text, read_file(AT_FDCWD, "/proc/cpuinfo"));
    std::vector<std::string> features;
    for (const std::string_view key : {"\nflags", "\nFeatures"}) {  // x86; arm64
        size_t at = text.find(key);
        if (at == std::string::npos || (at = text.find(": ", at)) == std::string::npos) continue;
        const std::string line = text.substr(at + 2, text.find('\n', at) - at - 2);
        for (size_t begin = 0; begin < line.size();) {
            const size_t end = std::min(line.find(' ', begin), line.size());
            if (end > begin) features.push_back(line.substr(begin, end - begin));
            begin = end + 1;
        }
        break;
    }
    std::sort(features.begin(), features.end());
    for (const std::string& feature : features)
        m.cpu_features += (m.cpu_features.empty() ? "" : " ") + feature;
    return m;
}

Result<Fd> create_image(int parent, const std::string& name) {
    MUST(valid_image_name(name));
    TRY(remove_directory(parent, part_of(name)));
    if (::mkdirat(parent, part_of(name).c_str(), 0700) != 0)
        return fail_errno("make image directory " + name, errno);
    return open_at(parent, part_of(name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<std::vector<ImageFile>> digest_files(int directory, const ImageFile* known) {
    TRY_ASSIGN(const auto names, list_dir(directory, "."));
    std::vector<ImageFile> files;
    Digest digest;
    for (const std::string& name : names) {
        if (!is_image_file(name)) {
            if (::unlinkat(directory, name.c_str(), 0) != 0)
                return fail_errno("remove " + name, errno);
            continue;
        }
        if (!valid_image_name(name) || files.size() >= image_files_max)
            return fail("image file '" + name + "': one too many");
        if (known && name == known->name) {
            files.push_back(*known);
            continue;
        }
        ImageFile file{name, 0, {}};
        digest.reset();
        TRY(read_through(directory, name, digest, file.bytes));
        file.digest = digest.hex();
        files.push_back(std::move(file));
    }
    return files;
}

Status seal_image(int parent, const std::string& name, const Manifest& manifest,
                  Durability durability) {
    TRY_ASSIGN(const Fd directory,
               open_at(parent, part_of(name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    TRY(create_file(directory.get(), manifest_name, encode_manifest(manifest)));
    if (durability == Durability::disk) {
        for (const ImageFile& f : manifest.files) TRY(sync_file(directory.get(), f.name));
        TRY(sync_file(directory.get(), manifest_name));
        if (::fsync(directory.get()) != 0) return fail_errno("sync the image directory", errno);
    }
    TRY(remove_directory(parent, name));
    if (::renameat(parent, part_of(name).c_str(), parent, name.c_str()) != 0)
        return fail_errno("name image " + name, errno);
    if (durability == Durability::disk && ::fsync(parent) != 0)
        return fail_errno("sync the image store", errno);
    return {};
}

Status unseal_image(int parent, const std::string& name) {
    TRY_ASSIGN(const Fd directory, open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (::unlinkat(directory.get(), manifest_name, 0) != 0 ||
        ::renameat(parent, name.c_str(), parent, part_of(name).c_str()) != 0)
        return fail_errno("unseal image " + name, errno);
    return {};
}

Status add_to_manifest(int directory, const Manifest& manifest, const std::string& added,
                       Durability durability) {
    TRY(create_file(directory, new_manifest_name, encode_manifest(manifest)));
    const bool durable = durability == Durability::disk;
    if (durable)
        for (const std::string& name : {added, std::string(new_manifest_name)})
            TRY(sync_file(directory, name));
    if (::renameat(directory, new_manifest_name, directory, manifest_name) != 0)
        return fail_errno("name the manifest of an image", errno);
    if (durable && ::fsync(directory) != 0) return fail_errno("sync the image directory", errno);
    return {};
}

Result<Fd> open_image(int parent, const std::string& name) {
    return open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<Manifest> read_manifest(int directory) {
    TRY_ASSIGN(const std::string text, read_file(directory, manifest_name, manifest_bytes_max));
    return decode_manifest(text);
}

Result<Manifest> verify_image(int directory, std::string_view but) {
    TRY_ASSIGN(Manifest manifest, read_manifest(directory));
    TRY_ASSIGN(const auto names, list_dir(directory, "."));
    for (const std::string& name : names) {
        const auto known = [&name](const ImageFile& f) { return f.name == name; };
        if (is_image_file(name) && !is_left_over(name, manifest.files) &&
            std::none_of(manifest.files.begin(), manifest.files.end(), known))
            return refuse_image("image file " + name + ": not in the manifest");
    }
    Digest digest;
    for (const ImageFile& f : manifest.files) {
        if (f.name == but) continue;
        uint64_t bytes = 0;
        if (!manifest.salt.empty()) {  // its key says whether it is damaged
            TRY_ASSIGN(bytes, file_bytes_of(directory, f.name));
            if (bytes == f.bytes) continue;
            return refuse_image("image file " + f.name + ": " + std::to_string(bytes) +
                                " bytes, not " + std::to_string(f.bytes));
        }
        digest.reset();
        TRY(read_through(directory, f.name, digest, bytes));
        if (bytes != f.bytes)
            return refuse_image("image file " + f.name + ": " + std::to_string(bytes) +
                                " bytes, not " + std::to_string(f.bytes));
        if (digest.hex() != f.digest) return refuse_image("image file " + f.name + ": damaged");
    }
    return manifest;
}

Status remove_image(int parent, const std::string& name) {
    TRY(remove_directory(parent, name));
    return remove_directory(parent, part_of(name));
}

}  // namespace souk

// SPDX-License-Identifier: GPL-2.0-or-later
// Whole images of encrypted files (encrypted_file.hpp).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "checkpoint/encrypted_file.hpp"
#include "checkpoint/stream_tag.hpp"

namespace souk {
namespace {

constexpr const char* half_made = ".encrypting";

// Returns the text that a manifest's tag covers: the manifest without the tag.
std::string text_to_sign(Manifest manifest) {
    manifest.tag.clear();
    return encode_manifest(manifest);
}

Result<ImageFile> encrypt_file(int from, const std::string& name, int to, const DiskKey& key) {
    TRY_ASSIGN(const Fd plain, open_at(from, name, O_RDONLY | O_NOFOLLOW));
    struct stat st {};
    if (::fstat(plain.get(), &st) != 0) return fail_errno("look at " + name, errno);
    if (!S_ISREG(st.st_mode)) return fail("image file '" + name + "': not a regular file");
    const auto bytes = static_cast<uint64_t>(st.st_size);
    const std::string made = from == to ? name + half_made : name;
    TRY_ASSIGN(Fd file, open_at(to, made, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    TRY_ASSIGN(EncryptedWriter writer, EncryptedWriter::open(std::move(file), name, key, bytes));
    const auto chunk = std::make_unique_for_overwrite<char[]>(ChunkCipher::chunk_bytes);
    for (uint64_t left = bytes; left > 0;) {
        const size_t want = std::min<uint64_t>(left, ChunkCipher::chunk_bytes);
        for (size_t got = 0; got < want;) {
            const ssize_t n = ::read(plain.get(), chunk.get() + got, want - got);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) return fail_errno("read " + name, errno);
            if (n == 0) return fail("image file " + name + ": became shorter");
            got += static_cast<size_t>(n);
        }
        TRY(writer.add_chunk(chunk.get(), want));
        left -= want;
    }
    TRY_ASSIGN(ImageFile stored, writer.end());
    if (from == to && ::renameat(to, made.c_str(), to, name.c_str()) != 0)
        return fail_errno("name image file " + name, errno);
    return stored;
}

Result<EncryptedReader> open_file(int directory, const ImageFile& stored, const DiskKey& key) {
    TRY_ASSIGN(Fd file, open_at(directory, stored.name, O_RDONLY | O_NOFOLLOW));
    return EncryptedReader::open(std::move(file), stored, key);
}

}  // namespace

Result<DiskKey> key_of_image(const Manifest& manifest, std::string_view secret, const JobId& job,
                             Epoch epoch) {
    if (manifest.salt.empty()) return DiskKey{};
    if (secret.empty())
        return fail(
            "its image is encrypted, and its key is not on this node: the job's home gives it "
            "with its next order");
    TRY_ASSIGN(DiskKey key, DiskKey::find(secret, job, epoch, manifest.salt));
    if (!same_tag(key.tag(text_to_sign(manifest)), manifest.tag))
        return refuse_image("the image was not made with the key of job " + job.text() +
                            ", epoch " + std::to_string(epoch.n) + ", or was changed since");
    return key;
}

void sign_manifest(Manifest& manifest, const DiskKey& key) {
    manifest.salt = key.salt();
    manifest.tag = key.tag(text_to_sign(manifest));
}

Result<std::vector<ImageFile>> encrypt_files(int from, int to, const DiskKey& key,
                                             const ImageFile* known) {
    TRY_ASSIGN(const auto names, list_dir(from, "."));
    std::vector<ImageFile> files;
    for (const std::string& name : names) {
        if (known && name == known->name) continue;
        if (!is_image_file(name)) {
            if (::unlinkat(from, name.c_str(), 0) != 0) return fail_errno("remove " + name, errno);
            continue;
        }
        if (!valid_image_name(name) || files.size() >= image_files_max)
            return fail("image file '" + name + "': one too many");
        TRY_ASSIGN(ImageFile stored, encrypt_file(from, name, to, key));
        files.push_back(std::move(stored));
    }
    if (known) files.push_back(*known);
    std::sort(files.begin(), files.end(),
              [](const ImageFile& a, const ImageFile& b) { return a.name < b.name; });
    return files;
}

Status decrypt_files(int from, const Manifest& manifest, const DiskKey& key, int to,
                     std::string_view but) {
    const auto chunk = std::make_unique_for_overwrite<char[]>(ChunkCipher::chunk_bytes);
    for (const ImageFile& stored : manifest.files) {
        if (stored.name == but) continue;
        TRY_ASSIGN(EncryptedReader reader, open_file(from, stored, key));
        TRY_ASSIGN(const Fd plain,
                   open_at(to, stored.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
        for (uint64_t at = 0; at < reader.bytes();) {
            const size_t n = std::min<uint64_t>(ChunkCipher::chunk_bytes, reader.bytes() - at);
            TRY(reader.read(at, chunk.get(), n));
            TRY(write_all(plain.get(), {chunk.get(), n}, "write image file " + stored.name));
            at += n;
        }
    }
    return {};
}

Result<std::string> read_encrypted(int directory, const Manifest& manifest, const DiskKey& key,
                                   std::string_view name, size_t bytes) {
    const auto stored = std::find_if(manifest.files.begin(), manifest.files.end(),
                                     [name](const ImageFile& f) { return f.name == name; });
    if (stored == manifest.files.end()) return fail("the image has no " + std::string(name));
    TRY_ASSIGN(EncryptedReader reader, open_file(directory, *stored, key));
    std::string text(std::min<uint64_t>(bytes, reader.bytes()), '\0');
    TRY(reader.read(0, text.data(), text.size()));
    return text;
}

}  // namespace souk

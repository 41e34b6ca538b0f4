// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/encrypted_file.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "checkpoint/stream_tag.hpp"
#include "kernel/base/little_endian.hpp"

namespace souk {
namespace {

constexpr size_t chunk_max = ChunkCipher::chunk_bytes, tag_size = ChunkCipher::tag_bytes;

tl::unexpected<Error> damaged(const std::string& name) {
    return refuse_image("image file " + name + ": damaged");
}

Status pwrite_all(int file, uint64_t at, std::string_view bytes, const std::string& name) {
    while (!bytes.empty()) {
        const ssize_t n = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_errno("write image file " + name, n < 0 ? errno : ENOSPC);
        bytes.remove_prefix(static_cast<size_t>(n));
        at += static_cast<uint64_t>(n);
    }
    return {};
}

Status pread_all(int file, uint64_t at, char* to, size_t bytes, const std::string& name) {
    for (size_t got = 0; got < bytes;) {
        const ssize_t n = ::pread(file, to + got, bytes - got, static_cast<off_t>(at + got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno("read image file " + name, errno);
        if (n == 0) return damaged(name);
        got += static_cast<size_t>(n);
    }
    return {};
}

std::string digest_of_tags(std::string_view tags) {
    Digest digest;
    digest.add(tags);
    return digest.hex();
}

auto* unsigned_of(char* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

}  // namespace

// -------------------------------------------------------------------------------------------------
// chunks

void ChunkCipher::Free::operator()(void* context) const {
    EVP_CIPHER_CTX_free(static_cast<EVP_CIPHER_CTX*>(context));
}

Result<ChunkCipher> ChunkCipher::make(const DiskKey& key, std::string_view name, uint64_t bytes) {
    ChunkCipher c;
    c.bytes_ = bytes;
    c.name_ = name;
    c.context_.reset(EVP_CIPHER_CTX_new());
    std::string secret = key.of_file(name);
    const int good = c.context_ ? EVP_CipherInit_ex(static_cast<EVP_CIPHER_CTX*>(c.context_.get()),
                                                    EVP_aes_256_gcm(), nullptr,
                                                    unsigned_of(secret.data()), nullptr, 1)
                                : 0;
    OPENSSL_cleanse(secret.data(), secret.size());
    if (good != 1) return fail("OpenSSL has no AES-256-GCM");
    return c;
}

bool ChunkCipher::begin(uint64_t number, int encrypts) {
    auto* const context = static_cast<EVP_CIPHER_CTX*>(context_.get());
    char nonce[12] = {}, length[8];
    put_le(nonce, number, 8);
    put_le(length, bytes_, 8);
    int n = 0;
    return EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, unsigned_of(nonce), encrypts) ==
               1 &&
           EVP_CipherUpdate(context, nullptr, &n, unsigned_of(length), sizeof length) == 1;
}

Status ChunkCipher::encrypt(uint64_t number, char* data, size_t bytes, char* tag) {
    auto* const context = static_cast<EVP_CIPHER_CTX*>(context_.get());
    int n = 0;
    unsigned char none[16];
    if (!begin(number, 1) ||
        EVP_CipherUpdate(context, unsigned_of(data), &n, unsigned_of(data),
                         static_cast<int>(bytes)) != 1 ||
        EVP_CipherFinal_ex(context, none, &n) != 1 ||
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, tag_bytes, tag) != 1)
        return fail("encrypt image file " + name_ + ": OpenSSL refuses");
    return {};
}

Status ChunkCipher::decrypt(uint64_t number, char* data, size_t bytes, const char* tag) {
    auto* const context = static_cast<EVP_CIPHER_CTX*>(context_.get());
    int n = 0;
    unsigned char none[16];
    char wanted[tag_bytes];
    std::memcpy(wanted, tag, sizeof wanted);
    if (begin(number, 0) &&
        EVP_CipherUpdate(context, unsigned_of(data), &n, unsigned_of(data),
                         static_cast<int>(bytes)) == 1 &&
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, tag_bytes, wanted) == 1 &&
        EVP_CipherFinal_ex(context, none, &n) == 1)
        return {};
    OPENSSL_cleanse(data, bytes);
    return damaged(name_);
}

uint64_t ChunkCipher::plain_bytes(uint64_t stored) {
    const uint64_t number = (stored + chunk_max + tag_size - 1) / (chunk_max + tag_size);
    return stored - std::min(stored, number * tag_size);
}

// -------------------------------------------------------------------------------------------------
// one file

Result<EncryptedWriter> EncryptedWriter::open(Fd file, std::string name, const DiskKey& key,
                                              uint64_t bytes) {
    EncryptedWriter w;
    TRY_ASSIGN(w.cipher_, ChunkCipher::make(key, name, bytes));
    w.file_ = std::move(file);
    w.name_ = std::move(name);
    w.bytes_ = bytes;
    w.tags_.reserve(ChunkCipher::chunks(bytes) * tag_size);
    return w;
}

Status EncryptedWriter::add(std::string_view bytes) {
    if (!chunk_) chunk_ = std::make_unique_for_overwrite<char[]>(chunk_max);
    while (!bytes.empty()) {
        const size_t part = std::min(bytes.size(), chunk_max - filled_);
        std::memcpy(chunk_.get() + filled_, bytes.data(), part);
        bytes.remove_prefix(part);
        filled_ += part;
        if (filled_ == chunk_max) TRY(add_chunk(chunk_.get(), std::exchange(filled_, 0)));
    }
    return {};
}

Status EncryptedWriter::add_chunk(char* chunk, size_t bytes) {
    if (bytes > bytes_ - at_ || (bytes < chunk_max && at_ + bytes != bytes_))
        return fail("image file " + name_ + ": its length has changed");
    char tag[tag_size];
    TRY(cipher_.encrypt(at_ / chunk_max, chunk, bytes, tag));
    tags_.append(tag, sizeof tag);
    TRY(pwrite_all(file_.get(), at_, {chunk, bytes}, name_));
    at_ += bytes;
    return {};
}

Result<ImageFile> EncryptedWriter::end() {
    if (filled_ > 0) TRY(add_chunk(chunk_.get(), std::exchange(filled_, 0)));
    if (at_ != bytes_) return fail("image file " + name_ + ": its length has changed");
    TRY(pwrite_all(file_.get(), bytes_, tags_, name_));
    return ImageFile{name_, bytes_ + tags_.size(), digest_of_tags(tags_)};
}

Result<EncryptedReader> EncryptedReader::open(Fd file, const ImageFile& stored,
                                              const DiskKey& key) {
    EncryptedReader r;
    struct stat st {};
    if (::fstat(file.get(), &st) != 0) return fail_errno("look at " + stored.name, errno);
    if (static_cast<uint64_t>(st.st_size) != stored.bytes)
        return refuse_image("image file " + stored.name + ": " + std::to_string(st.st_size) +
                            " bytes, not " + std::to_string(stored.bytes));
    r.bytes_ = ChunkCipher::plain_bytes(stored.bytes);
    if (ChunkCipher::stored_bytes(r.bytes_) != stored.bytes) return damaged(stored.name);
    r.file_ = std::move(file);
    r.name_ = stored.name;
    r.tags_.resize(ChunkCipher::chunks(r.bytes_) * tag_size);
    TRY(pread_all(r.file_.get(), r.bytes_, r.tags_.data(), r.tags_.size(), r.name_));
    if (digest_of_tags(r.tags_) != stored.digest) return damaged(stored.name);
    TRY_ASSIGN(r.cipher_, ChunkCipher::make(key, stored.name, r.bytes_));
    return r;
}

Status EncryptedReader::read_chunk(uint64_t number, char* to, size_t bytes) {
    TRY(pread_all(file_.get(), number * chunk_max, to, bytes, name_));
    return cipher_.decrypt(number, to, bytes, tags_.data() + number * tag_size);
}

Status EncryptedReader::read(uint64_t at, char* to, size_t bytes) {
    if (at > bytes_ || bytes > bytes_ - at) return damaged(name_);
    while (bytes > 0) {
        const uint64_t number = at / chunk_max, from = at % chunk_max;
        const size_t all = std::min<uint64_t>(chunk_max, bytes_ - number * chunk_max);
        const size_t part = std::min<uint64_t>(bytes, all - from);
        if (part == all) {
            TRY(read_chunk(number, to, all));
        } else {
            if (!chunk_) chunk_ = std::make_unique_for_overwrite<char[]>(chunk_max);
            if (number_ != number) {
                number_ = UINT64_MAX;
                TRY(read_chunk(number, chunk_.get(), all));
                number_ = number;
            }
            std::memcpy(to, chunk_.get() + from, part);
        }
        at += part;
        to += part;
        bytes -= part;
    }
    return {};
}

}  // namespace souk

// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/key.hpp"

#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "kernel/sys/host/fd.hpp"

namespace souk::trust {
namespace {

constexpr size_t key_file_bytes_max = 4096;

bool is_p256(EVP_PKEY* key) {
    char group[32] = {};
    size_t length = 0;
    return EVP_PKEY_is_a(key, "EC") == 1 &&
           EVP_PKEY_get_group_name(key, group, sizeof group, &length) == 1 &&
           std::string_view(group, length) == "prime256v1";
}

}  // namespace

Result<Key> Key::of(std::shared_ptr<EVP_PKEY> key) {
    if (!key) return fail_openssl("read a key");
    if (!is_p256(key.get())) return fail("a key that is not ECDSA on P-256");
    return Key(std::move(key));
}

Result<Key> Key::make() {
    const std::shared_ptr<EVP_PKEY> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    if (!key) return fail_openssl("make a key");
    return of(key);
}

Result<Key> Key::load(const std::string& path) {
    TRY_ASSIGN(const Fd file, open_at(AT_FDCWD, path, O_RDONLY));
    struct stat s {};
    if (::fstat(file.get(), &s) != 0) return fail_errno(path, errno);
    if ((s.st_mode & 077) != 0)
        return fail(path + " can be read by others than its owner: chmod 600 " + path);
    TRY_ASSIGN(
        const std::string pem,
        read_file(AT_FDCWD, "/proc/self/fd/" + std::to_string(file.get()), key_file_bytes_max));
    auto key = from_pem(pem);
    if (!key) return wrap(path, key.error());
    return key;
}

Result<Key> Key::from_pem(std::string_view pem) {
    const auto reader = reader_of(pem);
    const auto no_password = [](char*, int, int, void*) { return -1; };
    return of(
        {PEM_read_bio_PrivateKey(reader.get(), nullptr, no_password, nullptr), EVP_PKEY_free});
}

Result<std::string> Key::pem() const {
    const BioPtr memory(BIO_new(BIO_s_secmem()));
    if (!memory || PEM_write_bio_PKCS8PrivateKey(memory.get(), raw(), nullptr, nullptr, 0, nullptr,
                                                 nullptr) != 1)
        return fail_openssl("write a key");
    return text_of(memory.get());
}

Status Key::save(const std::string& path) const {
    TRY_ASSIGN(const std::string text, pem());
    TRY_ASSIGN(const Fd file, open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL, 0600));
    TRY(write_all(file.get(), text, path));
    if (::fsync(file.get()) != 0) return fail_errno("fsync " + path, errno);
    return {};
}

std::string Key::digest() const {
    unsigned char* der = nullptr;
    const int bytes = i2d_PUBKEY(raw(), &der);
    const std::string_view view(reinterpret_cast<char*>(der),
                                static_cast<size_t>(std::max(bytes, 0)));
    std::string digits = sha256(view);
    OPENSSL_free(der);
    return digits;
}

Result<std::string> Key::sign(std::string_view bytes) const {
    const DigestPtr context(EVP_MD_CTX_new());
    size_t length = 256;
    std::string signature(length, '\0');
    if (!context ||
        EVP_DigestSignInit_ex(context.get(), nullptr, "SHA256", nullptr, nullptr, raw(), nullptr) !=
            1 ||
        EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &length,
                       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()) != 1)
        return fail_openssl("sign");
    signature.resize(length);
    return signature;
}

Status Key::verify(std::string_view bytes, std::string_view signature) const {
    const DigestPtr context(EVP_MD_CTX_new());
    if (!context || EVP_DigestVerifyInit_ex(context.get(), nullptr, "SHA256", nullptr, nullptr,
                                            raw(), nullptr) != 1)
        return fail_openssl("verify a signature");
    if (EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                         signature.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                         bytes.size()) == 1)
        return {};
    return fail_openssl("the signature is wrong");
}

}  // namespace souk::trust

// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/identity.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "kernel/sys/host/fd.hpp"

namespace souk::trust {
namespace {

constexpr const char *key_file = "/key.pem", *chain_file = "/certificate.pem",
                     *root_file = "/root.pem", *revoked_file = "/revoked",
                     *issuing_key_file = "/issuing.key", *issuing_file = "/issuing.pem";
constexpr size_t pem_bytes_max = 64 * 1024;

Result<std::vector<Certificate>> read_chain(const std::string& path) {
    TRY_ASSIGN(const std::string pem, read_file(AT_FDCWD, path, pem_bytes_max));
    auto chain = parse_chain(pem);
    if (!chain) return wrap(path, chain.error());
    return chain;
}

bool missing(const std::string& path) {
    return ::access(path.c_str(), F_OK) != 0 && errno == ENOENT;
}

// The newest list that was stored; none: nobody is revoked.
Result<Revocations> read_revoked(const std::string& path, const Certificate& issuer) {
    if (missing(path)) return Revocations{};
    TRY_ASSIGN(const std::string text, read_file(AT_FDCWD, path, revocations_bytes_max));
    TRY_ASSIGN(const Key key, issuer.key());
    auto list = parse_revocations(text, key);
    if (!list) return wrap(path, list.error());
    return list;
}

Status fits(const Key& key, const Certificate& certificate, const std::string& dir) {
    TRY_ASSIGN(const Key certified, certificate.key());
    if (certified.digest() == key.digest()) return {};
    return fail(dir + ": its certificate is not of its key");
}

}  // namespace

Result<std::optional<Identity>> load_identity(const std::string& dir) {
    // A key without a certificate is left by a join that failed.
    if (missing(dir + chain_file)) return std::nullopt;
    TRY_ASSIGN(Key key, Key::load(dir + key_file));
    TRY_ASSIGN(auto chain, read_chain(dir + chain_file));
    TRY_ASSIGN(auto root, read_chain(dir + root_file));
    TRY(fits(key, chain.front(), dir));
    TRY_ASSIGN(Revocations revoked, read_revoked(dir + revoked_file, chain.back()));
    return Identity{std::move(key), std::move(chain), std::move(root.front()), std::move(revoked)};
}

Status make_private_dir(const std::string& dir) {
    for (size_t at = dir.find('/', 1);; at = dir.find('/', at + 1)) {
        const std::string part = dir.substr(0, at);
        const mode_t mode = at == std::string::npos ? 0700 : 0755;
        if (::mkdir(part.c_str(), mode) < 0 && errno != EEXIST)
            return fail_errno("make " + part, errno);
        if (at == std::string::npos) return {};
    }
}

Result<Key> key_of(const std::string& dir) {
    if (!missing(dir + key_file)) return Key::load(dir + key_file);
    TRY_ASSIGN(Key key, Key::make());
    TRY(key.save(dir + key_file));
    return key;
}

Status save_identity(const std::string& dir, const Identity& identity) {
    TRY(make_private_dir(dir));
    if (missing(dir + key_file)) TRY(identity.key.save(dir + key_file));
    TRY(replace_file(dir + root_file, identity.root.pem(), 0644, true));
    return save_chain(dir, identity.chain);
}

Status save_chain(const std::string& dir, const std::vector<Certificate>& chain) {
    return replace_file(dir + chain_file, pem_of(chain), 0644, true);
}

Status save_revoked(const std::string& dir, std::string_view signed_list) {
    return replace_file(dir + revoked_file, signed_list, 0644, true);
}

Result<Authority> load_issuing(const std::string& dir) {
    TRY_ASSIGN(Key key, Key::load(dir + issuing_key_file));
    TRY_ASSIGN(auto chain, read_chain(dir + issuing_file));
    TRY(fits(key, chain.front(), dir));
    return Authority{std::move(key), std::move(chain.front())};
}

Status save_issuing(const std::string& dir, const Authority& issuing) {
    TRY(make_private_dir(dir));
    TRY(issuing.key.save(dir + issuing_key_file));
    return replace_file(dir + issuing_file, issuing.certificate.pem(), 0644, true);
}

}  // namespace souk::trust

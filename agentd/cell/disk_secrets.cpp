// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/disk_secrets.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "checkpoint/disk_key.hpp"

namespace souk {

Result<DiskSecrets> DiskSecrets::open(int ram) {
    DiskSecrets all;
    if (::mkdirat(ram, directory_name, 0700) != 0 && errno != EEXIST)
        return fail_errno("make the directory of keys", errno);
    TRY_ASSIGN(all.directory_, open_at(ram, directory_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    TRY_ASSIGN(const auto names, list_dir(all.directory_.get(), "."));
    for (const std::string& name : names) {
        auto secret = read_file(all.directory_.get(), name, DiskKey::secret_bytes);
        if (secret && secret->size() == DiskKey::secret_bytes)
            all.secrets_[name] = std::move(*secret);
    }
    return all;
}

Status DiskSecrets::keep(const GuestKey& key, const std::string& secret) {
    std::string& kept = secrets_[key.text()];
    if (kept == secret) return {};
    kept = secret;
    return create_file(directory_.get(), key.text(), secret);
}

void DiskSecrets::forget(const GuestKey& key) {
    if (secrets_.erase(key.text()) > 0) (void)::unlinkat(directory_.get(), key.text().c_str(), 0);
}

void DiskSecrets::forget_but(const std::set<std::string>& known) {
    const auto names = list_dir(directory_.get(), ".");
    if (!names) return;
    for (const std::string& name : *names) {
        if (known.contains(name)) continue;
        secrets_.erase(name);
        (void)::unlinkat(directory_.get(), name.c_str(), 0);
    }
}

std::string DiskSecrets::find(const GuestKey& key) const {
    const auto it = secrets_.find(key.text());
    return it == secrets_.end() ? "" : it->second;
}

}  // namespace souk

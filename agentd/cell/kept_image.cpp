// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/kept_image.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "kernel/sys/process/init_protocol.h"

namespace souk {

Status KeptImage::make_place(std::string_view disk_secret) {
    image_.place(true);
    return image_.begin_encrypted(disk_secret);
}

void KeptImage::keep(const Manifest& manifest, std::function<void(const Status&)> done) {
    find_ends(manifest, image_.fd());
    Manifest all = manifest;
    if (image_.key())
        all.ends = {stdio_.ends().output[0], stdio_.ends().output[1], stdio_.ends().input};
    image_.keep(all, [this, done = std::move(done)](const Status& kept) {
        if (kept) image_.close();
        done(kept);
    });
}

void KeptImage::find_ends(const Manifest& manifest, int image) {
    if (const auto& e = manifest.ends) return stdio_.set_ends({{(*e)[0], (*e)[1]}, (*e)[2]});
    constexpr size_t bytes = sizeof(souk_residue);
    std::string residue(bytes, '\0');
    if (image_.key()) {
        auto read = read_encrypted(image, manifest, image_.key(), SOUK_RESIDUE_NAME, bytes);
        if (!read || read->size() != bytes) return;
        residue = std::move(*read);
    } else {
        const auto file = open_at(image, SOUK_RESIDUE_NAME, O_RDONLY);
        if (!file || ::pread(file->get(), residue.data(), bytes, 0) != ssize_t{bytes}) return;
    }
    stdio_.read_ends(residue);
}

}  // namespace souk

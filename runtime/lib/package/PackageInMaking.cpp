//===- PackageInMaking.cpp - a package that takes its place ---------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/package/PackageInMaking.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/interface/PackageFormat.h"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

using namespace memopt;

static const std::string prefix = ".memopt-making-";

/// Files of packages, those that say that a package is there first.
static const char *const packageFiles[] = {originFile,      manifestFile,  programFile, weightsFile,
                                           "kernels.cubin", "kernels.ptx", "kernels.bc"};

static bool isRegular(const std::string &path) {
  struct stat facts;
  return ::lstat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
}

/// Where a file of a package stands in their order, those of its other programs behind all of the
/// first's; nothing of what is no package's.
static std::optional<size_t> getPlaceOfFile(const std::string &name) {
  size_t number = 0, digits = name.find_first_not_of("0123456789");
  bool isNumbered = digits != std::string::npos && digits > 0 && digits < 5 && name[digits] == '.';
  if (isNumbered)
    number = size_t(std::stoul(name.substr(0, digits))) - 1;
  auto found = std::find(std::begin(packageFiles), std::end(packageFiles),
                         isNumbered ? name.substr(digits + 1) : name);
  if (found == std::end(packageFiles) || number >= mostPrograms || (isNumbered && number == 0))
    return std::nullopt;
  return number * std::size(packageFiles) + size_t(found - std::begin(packageFiles));
}

/// The files of the package in a folder, in their order.
static StatusOr<std::vector<std::string>> listPackage(const std::string &folder) {
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> names, listFolder(folder));
  names.erase(std::remove_if(names.begin(), names.end(),
                             [](const std::string &name) { return !getPlaceOfFile(name); }),
              names.end());
  std::sort(names.begin(), names.end(), [](const std::string &a, const std::string &b) {
    return *getPlaceOfFile(a) < *getPlaceOfFile(b);
  });
  return names;
}

/// Whether all that is in a folder is a package's, or part of one that a killed process has left.
static bool isPackageAlone(const std::string &folder) {
  StatusOr<std::vector<std::string>> names = listFolder(folder);
  return names.isOk() && std::all_of(names->begin(), names->end(), [&](const std::string &name) {
           return getPlaceOfFile(name) && isRegular(folder + "/" + name);
         });
}

/// Where this process stands, as a shell does that started it.
static bool isCurrentFolder(const std::string &folder) { return getRealPath(".") == folder; }

/// A path without links at its end where there is something, and without slashes at its end.
static std::string findTarget(std::string path) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  std::string real = getRealPath(path);
  return real.empty() ? path : real;
}

StatusOr<PackageInMaking> PackageInMaking::begin(const std::string &target) {
  auto fail = [&](Status status) {
    return std::move(status).withContext("cannot make the package's folder " + quote(target));
  };
  PackageInMaking making;
  making.target = findTarget(target);
  std::string beside = memopt::getFolder(making.target);
  std::error_code error;
  if (std::filesystem::create_directories(beside, error); error)
    return fail(environmentError(error.message()));
  if (fileExists(making.target) && !isFolder(making.target))
    return fail(environmentError("something else is there"));
  StatusOr<ScratchFolder> folder = ScratchFolder::create(beside + "/" + prefix);
  bool mustStay = isMountPoint(making.target) || isCurrentFolder(making.target);
  if ((!folder.isOk() || mustStay) && isFolder(making.target)) {
    folder = ScratchFolder::create(making.target + "/" + prefix);
    making.isInside = true;
  }
  if (!folder.isOk())
    return fail(folder.takeStatus());
  making.folder = *std::move(folder);
  making.path =
      making.folder.getPath() + "/" + making.target.substr(making.target.find_last_of('/') + 1);
  if (::mkdir(making.path.c_str(), 0777) != 0)
    return fail(environmentError(describeErrno("creating folder", making.path, errno)));
  return making;
}

/// What may be given to the new folder is; who may not give files away keeps them.
static void takePermissions(const std::string &from, const std::string &to) {
  struct stat facts;
  if (::stat(from.c_str(), &facts) != 0)
    return;
  (void)!::chown(to.c_str(), facts.st_uid, facts.st_gid);
  (void)!::chmod(to.c_str(), facts.st_mode & 07777);
}

/// One attempt; not done where somebody else was faster.
Status PackageInMaking::exchange(bool &isDone) {
  isDone = true;
  if (::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0)
    return Status::ok();
  if (errno == EINVAL || errno == ENOSYS) { // no such flag here: an empty folder gives way, too
    if (::rename(path.c_str(), target.c_str()) == 0)
      return Status::ok();
  }
  if (errno != EEXIST && errno != ENOTEMPTY)
    return environmentError(describeErrno("creating", target, errno));
  StatusOr<OpenFolder> old = OpenFolder::open(target);
  if (old.isOk())
    old->lock(/*isShared=*/false); // until those who load it have done so
  isDone = old.isOk() && old->isCurrent();
  if (!isDone)
    return Status::ok();
  takePermissions(target, path);
  bool isExchanged = isPackageAlone(target) && ::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD,
                                                           target.c_str(), RENAME_EXCHANGE) == 0;
  return isExchanged ? Status::ok() : replaceFiles();
}

Status PackageInMaking::replaceFiles() {
  auto pathOf = [&](const std::string &folder, const std::string &name) {
    return folder + "/" + name;
  };
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> before, listPackage(target));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> made, listPackage(path));
  for (const auto *names : {&before, &made})
    for (const std::string &name : *names)
      if (std::string old = pathOf(target, name); fileExists(old) && !isRegular(old))
        return environmentError("replacing " + quote(old) + ": it is no regular file");
  for (const std::string &name : before)
    if (::unlink(pathOf(target, name).c_str()) != 0 && errno != ENOENT)
      return environmentError(describeErrno("removing", pathOf(target, name), errno));
  std::reverse(made.begin(), made.end());
  for (const std::string &name : made)
    if (::rename(pathOf(path, name).c_str(), pathOf(target, name).c_str()) != 0)
      return environmentError(describeErrno("creating", pathOf(target, name), errno));
  return Status::ok();
}

Status PackageInMaking::publish() {
  MEMOPT_RETURN_IF_ERROR(syncFolder(path));
  if (isInside) {
    MEMOPT_ASSIGN_OR_RETURN(OpenFolder old, OpenFolder::open(target));
    old.lock(/*isShared=*/false);
    MEMOPT_RETURN_IF_ERROR(replaceFiles());
  } else {
    for (bool isDone = false; !isDone;)
      MEMOPT_RETURN_IF_ERROR(exchange(isDone));
  }
  return syncFolder(isInside ? target : memopt::getFolder(target));
}

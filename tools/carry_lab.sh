#!/bin/sh
# Pack the programs that a lab with networks needs, with their libraries, for a machine that has none of them:
#
#     tools/carry_lab.sh lab-tools.tar.gz         here, on a machine that has them (Debian, the same processor)
#     sudo tar -xzf lab-tools.tar.gz -C /usr/local && sudo /usr/local/lib/fabtui-lab/install    there
#
# What is there already stays: a library is added only if the loader finds none of its name.
set -eu
out=${1:?usage: carry_lab.sh FILE.tar.gz}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/bin" "$folder/lib/fabtui-lab"
for name in sshd ssh ssh-keygen ip tc nft ping sysctl; do
    path=$(PATH=$PATH:/usr/sbin:/sbin command -v "$name") || { echo "carry_lab.sh: there is no $name here" >&2; exit 2; }
    cp -L "$path" "$folder/bin/"
    ldd "$path" | awk '/=> \//{print $3}'
done | sort -u | grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv)\.so' | while read -r library; do
    cp -L "$library" "$folder/lib/fabtui-lab/"
done
cat > "$folder/lib/fabtui-lab/install" <<'END'
#!/bin/sh
set -eu
here=$(dirname "$0")
for library in "$here"/*.so*; do
    name=$(basename "$library")
    ldconfig -p | awk -v name="$name" '$1 == name { there = 1 } END { exit !there }' || cp "$library" /usr/local/lib/
done
ldconfig
mkdir -p /run/sshd /var/empty
# sshd drops its rights to this user.
grep -q '^sshd:' /etc/passwd || echo 'sshd:x:110:65534::/run/sshd:/usr/sbin/nologin' >> /etc/passwd
END
chmod +x "$folder/lib/fabtui-lab/install"
tar -czf "$out" -C "$folder" bin lib

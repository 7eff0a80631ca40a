docker run --rm -it -v /a:/b -p 80:80 ubuntu:24.04 bash

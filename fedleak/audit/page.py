"""The HTML around a report: styles for light, dark and narrow screens, and nothing from elsewhere."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root { color-scheme: light dark;
  --text: #1d2125; --back: #ffffff; --line: #c9ced3; --band: #f3f5f7; --strong: #0b5394 }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e8ea; --back: #15181b; --line: #454b52; --band: #1f2428; --strong: #8ab8f0 }
}
body { background: var(--back); color: var(--text); font: 1rem/1.55 system-ui, sans-serif; margin: 0 auto;
  max-width: 56rem; padding: 1rem 1.2rem 3rem; overflow-wrap: break-word }
h1 { font-size: 1.6rem; line-height: 1.25 } h2 { font-size: 1.2rem; margin-top: 2rem }
h1 + ul { background: var(--band); border-left: .3rem solid var(--strong); list-style: none; margin: 0;
  padding: .4rem 1rem }
h1 + ul > li { margin: .6rem 0 }
.wide, figure { margin: 1rem 0; overflow-x: auto }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; min-width: 44rem; width: 100% }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top }
tbody tr:nth-child(odd) { background: var(--band) }
figure { background: #ffffff; border-radius: .3rem; padding: .5rem }
figure svg { display: block; height: auto; margin: 0 auto; max-width: 36rem; min-width: 23rem; width: 100% }
code { font-size: .95em }
</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

"""Word lists for the synthetic dialogues."""

FIRST_NAMES = """
Anna Ben Carla David Elena Frank Grace Hugo Ines Jack Karim Laura Marco Nina Omar Paula Quinn Rosa Sam Tara Uwe Vera
Will Xenia Yusuf Zoe Amir Bianca Chen Dora Emil Fatima Goran Hana Ivan Julia Kofi Lena Mateo Noor Olga Pedro Ravi
Sofia Tom Ursula Viktor Wanda Yara Zane Aisha Bruno Chloe Diego Eva Finn Gita Henrik Isla Jonas Kira Liam Mia Nils
Oscar Priya Rafael Sara Theo Uma Vince Mary John Robert Linda James Susan Michael Karen Thomas Nancy Daniel Lisa Paul
Betty Mark Helen Steven Sandra Andrew Donna José Zoë André Søren Łukasz Chloé Jürgen Björn Renée Nuño
""".split()

LAST_NAMES = """
Smith Jones Garcia Miller Davis Lopez Wilson Moore Taylor Lee White Harris Clark Lewis Young Walker Hall Allen King
Wright Scott Hill Green Adams Baker Nelson Carter Mitchell Perez Roberts Turner Phillips Campbell Parker Evans Edwards
Collins Stewart Morris Rogers Reed Cook Morgan Bell Murphy Bailey Rivera Cooper Cox Ward Torres Peterson Gray Ramirez
Watson Brooks Kelly Sanders Price Bennett Wood Barnes Ross Henderson Coleman Jenkins Perry Powell Long Patterson
Hughes Flores Washington Butler Simmons Foster Bryant Russell Diaz Hayes Myers Ford Hamilton Graham Sullivan Wallace
Woods Cole West Owens Reynolds Fisher Ellis Harrison Gibson Cruz Marshall Gomez Murray Freeman Wells Webb Müller
Kowalski Ivanov Tanaka Sato Kim Nguyen Singh Patel Okafor Mensah Haddad Yilmaz O'Brien O'Connor Núñez Dvořák Lindström
Fernández
""".split()

CITIES = """
Paris London Berlin Madrid Rome Vienna Prague Warsaw Lisbon Dublin Oslo Stockholm Helsinki Copenhagen Athens Budapest
Brussels Amsterdam Zurich Geneva Milan Naples Turin Venice Florence Barcelona Valencia Seville Porto Lyon Nice Hamburg
Munich Cologne Dresden Leipzig Bremen Hanover Stuttgart Nuremberg Tokyo Osaka Kyoto Nagoya Seoul Busan Beijing
Shanghai Shenzhen Delhi Mumbai Chennai Kolkata Bangalore Jakarta Manila Hanoi Bangkok Singapore Sydney Melbourne Perth
Brisbane Auckland Wellington Cairo Lagos Nairobi Accra Tunis Casablanca Dakar Kampala Boston Chicago Denver Seattle
Portland Houston Dallas Austin Phoenix Miami Atlanta Detroit Cleveland Memphis Nashville Toronto Montreal Vancouver
Calgary Ottawa Quebec Bogota Lima Quito Santiago Caracas Montevideo Brasilia Salvador Recife Istanbul Ankara Izmir
Tehran Baghdad Riyadh Doha Dubai Kabul Tashkent Almaty Kiev Minsk Riga Vilnius Tallinn Sofia Belgrade Zagreb Sarajevo
Tirana
""".split()
CITIES += [
    "New York", "San Francisco", "Los Angeles", "San Diego", "Las Vegas", "New Orleans", "Mexico City",
    "Rio de Janeiro", "São Paulo", "Buenos Aires", "Cape Town", "Addis Ababa", "Dar es Salaam", "Kuala Lumpur",
    "Hong Kong", "Tel Aviv", "Abu Dhabi", "St. Petersburg", "Zürich", "Köln", "München", "Málaga", "Kraków",
    "Gdańsk", "Reykjavík", "Bogotá", "Québec", "Besançon", "Aix-en-Provence", "Stratford-upon-Avon",
    "Salt Lake City", "Kansas City", "Santa Fe", "Baden-Baden", "Winston-Salem", "Düsseldorf", "Göteborg", "Århus",
    "Ljubljana", "東京", "大阪", "北京",
]

COUNTRIES = """
France Germany Spain Italy Austria Poland Portugal Ireland Norway Sweden Finland Denmark Greece Hungary Belgium Japan
China India Brazil Peru Chile Canada Mexico Egypt Kenya Ghana Nigeria Morocco Turkey Iran Iraq Qatar Vietnam Thailand
Australia Romania Bulgaria Croatia Serbia Estonia Latvia Iceland Cuba Bolivia Ecuador Uruguay Paraguay Nepal Laos Mali
""".split()
COUNTRIES += [
    "New Zealand", "South Africa", "Saudi Arabia", "Costa Rica", "Sri Lanka",
]

CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Spain": "Madrid",
    "Italy": "Rome",
    "Austria": "Vienna",
    "Poland": "Warsaw",
    "Portugal": "Lisbon",
    "Ireland": "Dublin",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Denmark": "Copenhagen",
    "Greece": "Athens",
    "Hungary": "Budapest",
    "Belgium": "Brussels",
    "Japan": "Tokyo",
    "China": "Beijing",
    "India": "New Delhi",
    "Peru": "Lima",
    "Chile": "Santiago",
    "Canada": "Ottawa",
    "Mexico": "Mexico City",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Ghana": "Accra",
    "Turkey": "Ankara",
    "Iran": "Tehran",
    "Iraq": "Baghdad",
    "Qatar": "Doha",
    "Vietnam": "Hanoi",
    "Thailand": "Bangkok",
    "Australia": "Canberra",
    "Croatia": "Zagreb",
    "Serbia": "Belgrade",
    "Estonia": "Tallinn",
    "Latvia": "Riga",
    "Cuba": "Havana",
    "Nepal": "Kathmandu",
    "Brazil": "Brasilia",
    "Romania": "Bucharest",
    "Bulgaria": "Sofia",
    "Iceland": "Reykjavik",
    "Ecuador": "Quito",
    "Uruguay": "Montevideo",
    "Morocco": "Rabat",
}

COLORS = """
red blue green yellow orange purple pink white black brown gray cyan magenta gold silver teal navy violet
""".split()

ROOMS = [
    "kitchen", "bedroom", "living room", "bathroom", "hall", "office", "garage", "basement", "attic", "dining room",
    "nursery", "garden", "balcony", "study", "workshop",
]

LANGUAGES = """
French German Spanish Italian Portuguese Dutch Swedish Polish Russian Japanese Chinese Korean Arabic Hindi Turkish
Greek Finnish Danish Czech Hungarian English Latin Swahili Thai
""".split()

CURRENCIES = """
USD EUR GBP JPY CHF SEK NOK DKK PLN CZK HUF CAD AUD NZD CNY INR BRL MXN ZAR TRY KRW SGD
""".split()

EXTENSIONS = """
txt md py js ts rs go c cpp h java json yaml toml csv xml html css sh sql log png jpg pdf conf ini lock
""".split()

TOP_LEVEL_DOMAINS = """
com org net io dev example co.uk de fr info
""".split()

SYLLABLES = """
ka lo mi ren tor vis bel dra fen gul har jun nor pel qui sa ther ul wen zy mar os tin ve
""".split()

NUMBER_WORDS = {
    1: "one",
    2: "two",
    3: "three",
    4: "four",
    5: "five",
    6: "six",
    7: "seven",
    8: "eight",
    9: "nine",
    10: "ten",
    11: "eleven",
    12: "twelve",
}

# Verbs of function names, and the ways a request may say them.
VERBS = {
    "create": "create|make|add|set up",
    "delete": "delete|remove|get rid of",
    "update": "update|change|edit",
    "get": "get|fetch|show me|give me",
    "find": "find|look up|search for",
    "list": "list|show|enumerate",
    "send": "send|dispatch",
    "start": "start|launch|begin",
    "stop": "stop|halt|end",
    "check": "check|verify|inspect",
    "convert": "convert|transform",
    "export": "export|dump",
    "import": "import|load",
    "archive": "archive|store away",
    "assign": "assign|allocate",
    "approve": "approve|accept",
    "reject": "reject|decline",
    "cancel": "cancel|call off",
    "register": "register|sign up",
    "book": "book|reserve",
    "compute": "compute|calculate|work out",
    "render": "render|draw",
    "merge": "merge|combine",
    "split": "split|divide",
    "validate": "validate|check",
    "upload": "upload|push",
    "download": "download|pull",
    "schedule": "schedule|plan",
    "rename": "rename",
    "copy": "copy|duplicate",
    "move": "move",
    "print": "print",
    "scan": "scan",
    "sync": "sync|synchronize",
    "lock": "lock",
    "unlock": "unlock",
    "enable": "enable|switch on",
    "disable": "disable|switch off",
    "log": "log|record",
    "rate": "rate|score",
    "filter": "filter",
    "sort": "sort|order",
    "plan": "plan",
    "encode": "encode",
    "decode": "decode",
    "compress": "compress|pack",
    "install": "install",
    "configure": "configure|set up",
    "estimate": "estimate",
    "track": "track|follow",
    "reset": "reset",
    "query": "query",
    "publish": "publish|release",
    "measure": "measure",
    "monitor": "monitor|watch",
    "resolve": "resolve|settle",
    "submit": "submit|hand in",
    "tag": "tag|label",
    "translate": "translate",
    "summarize": "summarize",
}

NOUNS = """
account address alert album appointment archive article asset audit backup badge balance batch bill board bookmark
branch bucket budget bug build cache calendar camera campaign card case catalog category channel chart chat claim
client cluster comment company contact contract coupon course customer dashboard dataset deadline delivery deployment
device diagram discount document domain donation draft drone employee entry event exam exchange expense export feature
feed field file fleet flight folder form forum fund game gallery garden goal grade graph group guest guide habit hotel
house image incident index ingredient insurance interview inventory invoice item job journal key kitchen label lamp
layer lead lecture lesson letter library license link list listing loan location log machine magazine mail map market
match meal measurement meeting member memo menu message meter metric milestone mission model module movie museum
network note notice notification object offer office option order package page painting parcel parking part partner
party passport password patient payment permission photo plan plant playlist poem policy poll portfolio position post
poster prescription printer problem product profile program project promotion property proposal protocol quiz quote
race rating receipt recipe record refund region release reminder rental repair report request reservation resource
review reward ride robot role room route rule sale sample scene schedule school score script season section segment
sensor series server service session shelf shipment shop signal site sketch slide snapshot song source speaker sprint
stage station statement stock store story stream student style subscription summary supplier survey symbol table tag
target task tax team template tenant test theme thread ticket timer token tool topic tour track trade train
transaction transfer translation trip unit update user vacation vehicle vendor version video visit voucher wallet
warehouse watch website widget window workflow workout workspace zone
""".split()

ADJECTIVES = """
new daily weekly monthly public private internal external remote local active pending open closed global shared final
first last main digital annual custom smart premium
""".split()

# Parameter names that suit a kind of string value.
PARAMETERS_OF_KIND = {
    "person": "name full_name owner author assignee contact customer manager teacher player user_name approver",
    "city": "city location destination town place origin region",
    "email": "email recipient email_address cc reply_to contact_email",
    "date": "date due_date start_date end_date day deadline birth_date",
    "time": "time start_time end_time at opening_time",
    "phrase": "title subject topic description label note reason query keyword caption heading comment_title",
    "sentence": "message text body comment content feedback summary instructions note_text",
    "title": "title project_name product event_name book album",
    "word": "tag category keyword kind code_name topic group",
    "path": "path file_path source output directory target_file input_file",
    "url": "url link website callback_url source_url homepage",
    "id": "id order_id reference ticket_id tracking_number serial_number invoice_id record_id",
    "phone": "phone phone_number mobile fax",
    "code": "code source_code snippet script body",
    "color": "color colour background text_color",
    "country": "country nationality market",
    "lang": "language target_language locale_name",
    "cur": "currency currency_code",
    "version": "version release min_version",
    "ip": "ip ip_address host_address",
    "host": "host server hostname",
    "uuid": "uuid session_id token request_id",
    "hex": "hash checksum commit digest",
    "json": "payload metadata raw_data extra",
    "shell": "command command_line",
    "regex": "pattern regex",
    "file": "filename file attachment document",
    "room": "room area",
    "ticker": "symbol ticker",
    "expr": "expression formula",
    "hashtag": "hashtag",
    "coords": "coordinates position",
    "md": "markdown template",
    "datetime": "timestamp created_at starts_at",
}

INTEGER_PARAMETERS = """
count limit quantity amount age priority level page size width height duration port retries score year max_results
min_score floor seats weight user_id threshold batch_size timeout delay rank
""".split()

NUMBER_PARAMETERS = """
price rate ratio amount temperature weight latitude longitude distance factor discount score tolerance speed balance
percentage length
""".split()

BOOLEAN_PARAMETERS = """
active urgent public verbose recursive force dry_run notify archived visible enabled confirmed draft include_details
send_copy overwrite strict paid shared
""".split()

# Parameter names with their allowed values.
ENUMS = {
    "priority": "low medium high urgent",
    "status": "open closed pending archived",
    "format": "json csv xml pdf",
    "mode": "fast safe full quick",
    "size": "small medium large",
    "unit": "metric imperial",
    "sort_order": "ascending descending",
    "level": "debug info warning error",
    "category": "work home travel health",
    "visibility": "public private team",
    "frequency": "daily weekly monthly yearly",
    "color_scheme": "light dark auto",
    "environment": "staging production testing",
    "difficulty": "easy normal hard",
    "direction": "north south east west",
    "payment_method": "card cash transfer invoice",
    "type": "basic standard premium",
    "quality": "draft normal best",
}

ARRAY_PARAMETERS = """
tags items labels members participants ingredients keywords files categories names steps columns recipients
""".split()

NUMBER_ARRAY_PARAMETERS = """
values numbers ids scores sizes readings ages
""".split()

OBJECT_PARAMETERS = """
options settings filters attributes properties details config labels_map
""".split()

SYSTEM_PROMPTS = [
    "You are a helpful assistant.",
    "You are a careful assistant. Keep answers short.",
    "Be brief.",
    "You are a friendly assistant who uses the tools when they help.",
    "Answer politely and to the point.",
    "You work for a small company. Help its customers.",
    "Today is a normal day. Help the user.",
    "Use the functions only when they are needed.",
]

# Things to name when a user asks for some.
CATEGORIES = {
    "fruits": "apple banana cherry grape lemon mango orange peach pear plum kiwi fig melon",
    "animals": "dog cat horse cow sheep lion tiger bear wolf fox rabbit mouse eagle owl whale",
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune",
    "vegetables": "carrot onion potato leek cabbage spinach bean pea tomato pepper",
    "musical instruments": "piano violin guitar flute drum trumpet cello harp oboe",
}
